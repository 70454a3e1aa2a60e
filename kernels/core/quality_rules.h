// What quality makes of measured rows, whatever device measured them.
#ifndef KVTRIAGE_KERNELS_CORE_QUALITY_RULES_H_
#define KVTRIAGE_KERNELS_CORE_QUALITY_RULES_H_

#include <cstddef>
#include <span>

#include "kvtriage/kernels/quality.h"

namespace kvtriage {

// One query row of one query head.
struct RowQuality {
  bool usable = false;
  double mass = 0;           // sum of A over kept tokens
  double total = 0;          // sum of A over all tokens that the row sees; not finite: not usable
  double error_square = 0;   // |O^ - o|^2
  double output_square = 0;  // |o|^2
};

// The number of an input's rows that are measured: all that can have a place in the sequence.
size_t MeasuredRows(const QualityRequest& request);

// Sums up `rows`, those of every KV head's group one after the other, and judges the given LSE.
// Overwrites `result`.
void SummariseRows(const QualityRequest& request, std::span<const RowQuality> rows,
                   QualityResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_QUALITY_RULES_H_
