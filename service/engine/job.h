// One admitted call on its way to the lane.
#ifndef KVTRIAGE_SERVICE_ENGINE_JOB_H_
#define KVTRIAGE_SERVICE_ENGINE_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "service/engine/call_kind.h"
#include "service/engine/engine.h"
#include "service/engine/idempotency.h"
#include "service/engine/sequence_table.h"

namespace kvtriage {

struct Job {
  uint64_t id = 0;
  Call call;
  CallKey key;
  CallKind kind = CallKind::kCompress;
  std::variant<CompressSpec, SelectRecomputeSpec> spec;
  std::shared_ptr<SequenceTable> sequences;  // of the session
  std::vector<uint64_t> sequence_ids;        // ascending
  std::optional<uint32_t> ledger_slot;       // set when the call writes in place
  uint64_t bytes = 0;                        // about what the lane will read
  absl::Time admitted;

  uint64_t session_id() const { return key.session_id; }
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_JOB_H_
