// What checked calls about running scores want.
#ifndef KVTRIAGE_SERVICE_POLICY_OBSERVE_SPEC_H_
#define KVTRIAGE_SERVICE_POLICY_OBSERVE_SPEC_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "service/policy/compress_spec.h"

namespace kvtriage {

struct ObserveStep {
  uint32_t draft_rows = 0;       // newest rows that are not accepted yet
  uint32_t trigger = 0;          // evict above it; 0 = the budget
  bool accumulate_only = false;  // never evict

  // Whether the step may evict, whatever its length.
  bool may_evict() const { return !accumulate_only && draft_rows == 0; }
};

struct ObserveSpec {
  RequestHeader header;
  uint64_t cache_id = 0;
  std::optional<PolicySpec> policy;     // absent: the one that the sequences run under
  std::vector<SequenceSpec> sequences;  // without row_limits
  std::vector<ObserveStep> steps;       // one per sequence
  ScoreInputsSpec inputs;
  ActSpec act;  // select only when no step may evict and none was given
  LengthRule lengths = LengthRule::kAny;
  KeptFormat format = KeptFormat::kIndices;
};

struct RewindSpec {
  RequestHeader header;
  uint64_t sequence_id = 0;
  uint32_t generation = 0;
  uint32_t rows = 0;  // >= 1
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_OBSERVE_SPEC_H_
