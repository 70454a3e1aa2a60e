// What the ranks of a group have to agree on, in a form that can be compared.
#ifndef KVTRIAGE_SERVICE_ENGINE_GROUP_TERMS_H_
#define KVTRIAGE_SERVICE_ENGINE_GROUP_TERMS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "service/engine/plan.h"
#include "service/policy/blend_spec.h"

namespace kvtriage {

struct GroupTerm {
  std::string_view field;  // of the request
  uint64_t hash = 0;
};
using GroupTerms = std::vector<GroupTerm>;  // of one kind of call: as many, in one order

// Lengths, explicit rows, policy and budget, layers (by their place in the model), act, length rule
// and the model's heads. Ids, tables, inputs, fences and measures are each rank's own.
GroupTerms TermsOf(const CompressSpec& spec, const PlanCache& cache);
// Rows and their classes, metric, amount, positions, and the model's heads.
GroupTerms TermsOf(const SelectRecomputeSpec& spec);

// GROUP_MISMATCH, naming the first field that differs.
absl::Status CheckTermsEqual(const GroupTerms& a, const GroupTerms& b);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_GROUP_TERMS_H_
