// How a product q.k becomes the logit that enters the softmax.
#ifndef KVTRIAGE_KERNELS_CORE_LOGIT_RULE_H_
#define KVTRIAGE_KERNELS_CORE_LOGIT_RULE_H_

#include <cstdint>

#include "kvtriage/kernels/attention.h"

namespace kvtriage {

// Logits are in base 2. When `plain`, the logit is product * scale2 + product * scale2_low and
// nothing else has to be done; else products are bent before they are used.
struct LogitRule {
  bool plain = true;
  float scale = 1.0f;  // z0 = product * scale
  float scale2 = 1.0f, scale2_low = 0.0f;
  double softcap = 0;     // 0: none
  float cap2 = 0.0f;      // softcap * log2 e
  float over_cap = 0.0f;  // scale / softcap

  // What is left to multiply with once the products are bent.
  float bent_scale2() const { return plain ? scale2 : 1.0f; }
  float bent_scale2_low() const { return plain ? scale2_low : 0.0f; }
};

// A bent logit in float64; slope2 and distance as for BendRow.
double BentLogit2(const LogitRule& rule, float product, float slope2, int64_t distance);

LogitRule LogitRuleOf(const AttentionInput& input);

// ALiBi slope of a query head in base 2, 0 when there are none; natural logit of its learned sink
// in base 2, -Inf when there is none. Not finite (sink: NaN or +Inf) when the data is not: rows of
// that head cannot vote.
float AlibiSlope2(const AttentionInput& input, uint32_t head);
double SinkLogit2(const AttentionInput& input, uint32_t head);

// log2(2^lse2 + 2^sink2).
double WithSink(double lse2, double sink2);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_LOGIT_RULE_H_
