// The policy of a golden file as the product's own values.
#ifndef KVTRIAGE_TESTS_GOLDEN_GOLDEN_POLICY_H_
#define KVTRIAGE_TESTS_GOLDEN_GOLDEN_POLICY_H_

#include "nlohmann/json.hpp"
#include "service/policy/compress_spec.h"
#include "service/policy/policy.h"

namespace kvtriage {

PolicySpec PolicyOf(const nlohmann::json& policy);

// The explicit rows that the case protects; none for most.
ExplicitRows ExplicitRowsOf(const nlohmann::json& policy);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_GOLDEN_GOLDEN_POLICY_H_
