#include "kernels/core/logit_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/dtype.h"

namespace kvtriage {
namespace {

constexpr double kLog2E = 1.4426950408889634074;

}  // namespace

double BentLogit2(const LogitRule& rule, float product, float slope2, int64_t distance) {
  double logit = double{product} * rule.scale;
  if (rule.softcap > 0) logit = rule.softcap * std::tanh(logit / rule.softcap);
  return logit * kLog2E + double{slope2} * static_cast<double>(distance);
}

LogitRule LogitRuleOf(const AttentionInput& input) {
  LogitRule rule;
  const double scale2 = input.scale * kLog2E;
  rule.scale = input.scale;
  rule.scale2 = static_cast<float>(scale2);
  rule.scale2_low = static_cast<float>(scale2 - rule.scale2);
  if (input.softcap > 0) {
    // A cap so small that the quotient overflows caps everything anyway.
    const double quotient = double{input.scale} / input.softcap;
    rule.over_cap = static_cast<float>(
        std::min(quotient, static_cast<double>(std::numeric_limits<float>::max())));
    rule.softcap = input.softcap;
    rule.cap2 = static_cast<float>(input.softcap * kLog2E);
  }
  rule.plain = !(input.softcap > 0) && !input.alibi_slopes;
  return rule;
}

float AlibiSlope2(const AttentionInput& input, uint32_t head) {
  if (!input.alibi_slopes) return 0.0f;
  const TensorView& slopes = input.alibi_slopes;
  return static_cast<float>(LoadElement(slopes.At(0, head, 0), slopes.dtype) * kLog2E);
}

double SinkLogit2(const AttentionInput& input, uint32_t head) {
  if (!input.sink_logits) return -std::numeric_limits<double>::infinity();
  return LoadElement(input.sink_logits.At(0, head, 0), input.sink_logits.dtype) * kLog2E;
}

double WithSink(double lse2, double sink2) {
  const double top = std::max(lse2, sink2);
  if (!std::isfinite(top)) return top;
  return top + std::log2(std::exp2(lse2 - top) + std::exp2(sink2 - top));
}

}  // namespace kvtriage
