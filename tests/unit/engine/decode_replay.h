// The rules of decode-time eviction in float64, row by row, on the worker's own memory: an oracle
// that shares with the service nothing but the numbers in the cache.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_DECODE_REPLAY_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_DECODE_REPLAY_H_

#include <map>
#include <vector>

#include "tests/unit/engine/decode_worker.h"

namespace kvtriage {

class DecodeReplay {
 public:
  DecodeReplay(DecodeWorker& worker, const PolicySpec& policy) : worker_(worker), policy_(policy) {}

  // Adds the contributions of rows [first, end) of a sequence, whose K, V and tokens are in place.
  void Add(uint64_t id, uint32_t first, uint32_t end);

  // Whether the kept lists of an eviction of `rows` rows are right: the protected rows, and the
  // best of the others, where rows within 1e-4 of the cut may stand for each other. Then goes on
  // with the lists as they are. Called before the worker follows the answer. Returns how many lists
  // had such a close cut.
  uint32_t Check(uint64_t id, uint32_t rows, const TriageResult& result);

  // Goes on with lists that another policy has chosen.
  void Follow(uint64_t id, uint32_t rows, const TriageResult& result);

  void Forget(uint64_t id) { sums_.erase(id); }

 private:
  using Sums = std::vector<std::vector<double>>;  // per head
  std::vector<double> ScoresOf(uint64_t id, uint32_t layer, uint32_t head, uint32_t rows);
  std::vector<Sums>& SumsOf(uint64_t id);
  uint32_t CheckList(const std::vector<double>& scores, uint32_t rows,
                     const std::vector<int32_t>& kept) const;
  uint32_t RecentOf(uint32_t rows) const;

  DecodeWorker& worker_;
  const PolicySpec policy_;
  std::map<uint64_t, std::vector<Sums>> sums_;  // per layer
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_DECODE_REPLAY_H_
