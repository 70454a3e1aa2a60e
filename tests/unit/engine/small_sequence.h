// Builds the few-row sequences of the triage tests by hand.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_SMALL_SEQUENCE_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_SMALL_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "service/engine/triage.h"
#include "tests/support/placed_cache.h"

namespace kvtriage {

inline constexpr CacheLayout kOneBlock = {"one block", 0, false, 0};

// Owns caches and inputs; `sequence` points into it.
class SmallSequence {
 public:
  // k [heads, rows, dk], v [heads, rows, dv].
  TriageLayer& AddLayer(uint32_t q_heads, uint32_t heads, uint32_t rows,
                        const std::vector<float>& k, const std::vector<float>& v,
                        const CacheLayout& layout = kOneBlock);
  // float32 tensor of x [heads, rows, elems].
  TensorView Tensor(const std::vector<double>& x, uint32_t heads, uint32_t rows, uint32_t elems);

  // A layer whose numbers come from golden stream `seed`, with `queries` query rows (kQuery), an
  // output projection and moments of queries.
  TriageLayer& AddGridLayer(uint64_t seed, uint32_t q_heads, uint32_t heads, uint32_t rows,
                            uint32_t size, uint32_t queries, const CacheLayout& layout = kOneBlock);
  // A layer of zero keys and values whose column sums [heads, rows] are given.
  TriageLayer& AddSumsLayer(uint32_t heads, const std::vector<double>& sums);

  TriageSequence sequence;

 private:
  std::vector<std::unique_ptr<PlacedCache>> caches_;
  std::vector<DenseTensor> tensors_;
};

// Attention, SUM, no pool, window of all rows, nothing protected.
PolicySpec PlainPolicy(Scorer scorer = Scorer::kAttention);
// A named policy that keeps `tokens` rows.
PolicySpec NamedPolicy(std::string_view name, uint32_t tokens);

// Triage that must succeed, on a CPU backend of two threads.
TriageResult Triage(const TriageSequence& sequence, const PolicySpec& policy,
                    const MeasureSpec& measure = {});

std::vector<size_t> Counts(const TriageResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_SMALL_SEQUENCE_H_
