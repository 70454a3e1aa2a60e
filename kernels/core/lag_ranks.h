// LagKV behind the deviations: partitions, importance, ranks. A row's deviation says how far its
// channels spread between the extremes of the partition behind its own.
#ifndef KVTRIAGE_KERNELS_CORE_LAG_RANKS_H_
#define KVTRIAGE_KERNELS_CORE_LAG_RANKS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kvtriage {

// Partitions that have another one behind them; 0: the newest rows are best.
uint64_t MeasuredPartitions(uint64_t rows, uint64_t sinks, uint64_t lag);

// Scores of rows without a rank, added to what is 0, or NaN for bad rows: 1, or a row's number when
// nothing is measured.
void AddLagDefaults(uint64_t measured, std::span<float> scores);

// Work memory of RankLagPartition.
struct LagRankScratch {
  std::vector<double> importance;
  std::vector<uint32_t> order;
};

// Scores of one partition's good rows, those whose `bad` is 0: rank / lag, worst first; of equal
// rows the later one is worse. Deviations of K and V, one per row; what is beyond float32 counts as
// its largest number, so that the order stays total.
void RankLagPartition(std::span<const float> of_keys, std::span<const float> of_values,
                      std::span<const float> bad, LagRankScratch& scratch, std::span<float> scores);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_LAG_RANKS_H_
