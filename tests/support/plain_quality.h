// The numbers of kvtriage/kernels/quality.h in float64 with plain loops.
#ifndef KVTRIAGE_TESTS_SUPPORT_PLAIN_QUALITY_H_
#define KVTRIAGE_TESTS_SUPPORT_PLAIN_QUALITY_H_

#include <vector>

#include "kvtriage/kernels/quality.h"

namespace kvtriage {

// One (query head, row) pair that can be measured.
struct PlainRowQuality {
  uint32_t q_head = 0, row = 0;
  double mass = 0, total = 0, error_square = 0, output_square = 0;
};

std::vector<PlainRowQuality> PlainRows(const QualityRequest& request);

QualityResult PlainQuality(const QualityRequest& request);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_PLAIN_QUALITY_H_
