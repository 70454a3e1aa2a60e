// How large an answer is, known before any row moves.
#ifndef KVTRIAGE_SERVICE_ENGINE_ANSWER_SIZE_H_
#define KVTRIAGE_SERVICE_ENGINE_ANSWER_SIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "service/engine/engine.h"
#include "service/engine/plan.h"

namespace kvtriage {

// At least as many bytes as the serialised response takes.
uint64_t ResponseBound(const CompressAnswer& answer);
uint64_t ResponseBound(const RecomputeAnswer& answer);
// The same before anything is scored. Errors are those of a budget that does not fit the protected
// rows (TriageOne).
absl::StatusOr<uint64_t> AnswerBound(const CompressSpec& spec, const CompressPlan& plan);
// The part of it that the triage of a sequence of `rows` rows takes.
uint64_t TriageBound(const TriageResult& result, uint64_t rows, KeptFormat format);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_ANSWER_SIZE_H_
