// Scorer, both ways.
#ifndef KVTRIAGE_SERVICE_VALIDATE_SCORER_PARTS_H_
#define KVTRIAGE_SERVICE_VALIDATE_SCORER_PARTS_H_

#include "absl/status/status.h"
#include "kvtriage/kernels/score.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage {

// Sets the scorer and its numbers, and nothing else of `score`. FIELD_MISSING, ENUM_UNSPECIFIED,
// FIELD_INVALID; fields are relative to the parts ("scorer.lagkv.lag").
absl::Status ParseScorer(const v1::Scorer& scorer, ScoreSpec& score);

void WriteScorer(const ScoreSpec& score, v1::Scorer& scorer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_SCORER_PARTS_H_
