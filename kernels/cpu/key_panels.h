// What the scorers that need no queries read off ranges of keys.
#ifndef KVTRIAGE_KERNELS_CPU_KEY_PANELS_H_
#define KVTRIAGE_KERNELS_CPU_KEY_PANELS_H_

#include <cstdint>

#include "kernels/cpu/aligned_floats.h"
#include "kvtriage/kernels/attention.h"

namespace kvtriage {

// Work memory of one worker.
struct KeyScratch {
  AlignedFloats pack, keys, sums;
};

// Rows [begin, end) of one KV head.
struct KeyRange {
  const LayerRows& layer;
  uint32_t kv_head;
  uint64_t begin, end;
};

// norms[t] = |k| of row begin + t, NaN for bad rows.
void KeyNorms(const KeyRange& range, KeyScratch& scratch, float* norms);

// sum[c] = sum over good rows of k[c] / max(|k|, 1e-12); returns their number.
uint64_t SumUnitKeys(const KeyRange& range, KeyScratch& scratch, double* sum);

// scores[t] = -k.m / max(|k| |m|, 1e-8) of row begin + t, NaN for bad rows.
void KeyDistances(const KeyRange& range, const float* mean, float mean_norm, KeyScratch& scratch,
                  float* scores);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_KEY_PANELS_H_
