// How good a kept set is, on given query rows. Per query head h and row i with kept set K of its KV
// head:
//   mass  = sum_{p in K} A_ip
//   O^    = sum_{p in K} A_ip v_p / (mass + sink)  (0 if mass = 0): the attention output over
//           the kept rows; sink = what a declared learned sink holds of the row, else 0
//   error = |O^ - o| / max(|o|, 1e-12)
//   pooled error of a set of rows = sqrt( sum |O^ - o|^2 / max(sum |o|^2, 1e-24) )
#ifndef KVTRIAGE_KERNELS_QUALITY_H_
#define KVTRIAGE_KERNELS_QUALITY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvtriage/kernels/attention.h"

namespace kvtriage {

// Measured on all rows of the input (kQuery, kQueryOutput or kReady). With kQueryOutput the given O
// and LSE are the truth; else the attention over all visible rows is. Unusable rows (score.h) do
// not count.
struct QualityRequest {
  LayerRows layer;  // K and V, as they were before any move
  AttentionInput input;
  std::vector<std::span<const int32_t>> kept;  // one ascending list per KV head
};

struct HeadQuality {         // one KV head, over the group's query heads and rows
  uint32_t usable_rows = 0;  // (query head, row) pairs measured; nothing else is set when 0
  double mass_mean = 0, mass_low = 0;
  double error_high = 0;      // worst row's relative error
  double error_squares = 0;   // sum |O^ - o|^2
  double output_squares = 0;  // sum |o|^2
  double error() const;       // pooled over the rows
};

struct QualityResult {
  std::vector<HeadQuality> heads;
  // A row's A over all rows it sees added up to less than 0.9 (unless a learned sink is declared)
  // or more than 1.1: the given LSE does not belong to these inputs (wrong base, scale or rows).
  bool lse_suspect = false;
};

// |chosen and best k of oracle| / k over `candidates` (ascending), k = chosen.size(); candidates
// tied with the oracle's cut count as hits up to k; 1 when k = 0. `oracle` is [N] (kDrop scores).
double OracleRecall(std::span<const float> oracle, std::span<const int32_t> candidates,
                    std::span<const int32_t> chosen);

// Entry ceil(q*n) (1-based) of the ascending values; values must not be empty.
double Percentile(std::vector<double> values, double q);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_QUALITY_H_
