// What LagKV reads off ranges of K or V: which rows are bad, the extremes of every channel, and how
// far a row's channels spread between the extremes of other rows.
#ifndef KVTRIAGE_KERNELS_CPU_LAG_PANELS_H_
#define KVTRIAGE_KERNELS_CPU_LAG_PANELS_H_

#include <cstdint>

#include "kernels/cpu/aligned_floats.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage {

// Rows [begin, end) of one head of a view.
struct RowRange {
  const KvView& view;
  const SequenceRows& sequence;
  uint32_t head;
  uint64_t begin, end;
};

// Work memory of one worker.
struct LagScratch {
  AlignedFloats pack, panel, low_lanes, high_lanes;
};

// Adds NaN to bad[t] where row begin + t has a non-finite element, else 0.
void MarkBadRows(const RowRange& range, LagScratch& scratch, float* bad);

// low[c], high[c]: extremes of channel c over the rows with bad[t] = 0; +Inf and -Inf without any.
void FindExtremes(const RowRange& range, const float* bad, LagScratch& scratch, float* low,
                  float* high);

// deviations[t]: sample deviation over the channels of y = (x - low) / (high - low), y = 0 where
// high is not above low; 0 for a single channel. Any number or NaN for bad rows.
void Deviations(const RowRange& range, const float* low, const float* high, LagScratch& scratch,
                float* deviations);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_LAG_PANELS_H_
