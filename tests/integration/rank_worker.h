// One rank of a tensor-parallel worker: some KV heads of a small model, whose column sums have
// ties, in memory of its own. Rank and seed say everything, so that any process can be any rank.
#ifndef KVTRIAGE_TESTS_INTEGRATION_RANK_WORKER_H_
#define KVTRIAGE_TESTS_INTEGRATION_RANK_WORKER_H_

#include <cstdint>
#include <vector>

#include "kvtriage/compress.h"
#include "kvtriage/host_memory.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

class RankWorker {
 public:
  static constexpr uint32_t kLayers = 2, kHeads = 2, kRows = 120, kElems = 4;  // heads per rank

  // The seed is the model's; the group's key is made of it.
  RankWorker(uint64_t seed, uint32_t rank, uint32_t ranks);

  // Registers. Fails the test on an error.
  void Lend(Session& session);
  // Attention from the column sums; heads share a layer's set; in place.
  CompressRequest Request(uint32_t kept) const;
  // Whether memory holds the rows `kept` (per layer) in front, in every layer and head of K and V;
  // the rows of a sequence that nothing happened to when `kept` is empty.
  bool Holds(const std::vector<std::vector<int32_t>>& kept) const;

  // A column sum of the model: few different numbers, so sums over heads tie.
  static float Sum(uint64_t seed, uint32_t layer, uint32_t head, uint32_t row);
  // The best `kept` rows of a layer by the float64 sum over all heads of the model, ties to the
  // lower row.
  static std::vector<int32_t> Best(uint64_t seed, uint32_t layer, uint32_t ranks, uint32_t kept);

 private:
  float* Row(uint32_t plane, uint32_t head, uint32_t row) const;
  float Stamp(uint32_t plane, uint32_t head, uint32_t row) const;
  TensorSpec Sums() const;

  const uint64_t seed_;
  const uint32_t rank_, ranks_;
  HostMemory memory_;
  Registered lent_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_TESTS_INTEGRATION_RANK_WORKER_H_
