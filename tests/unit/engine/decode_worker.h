// A worker that decodes: sequences that grow token by token in lent memory, the calls it makes
// about them, and what it knows of their rows. Tokens have K, V and queries of their own, so that
// every row in the cache can be told from any other.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_DECODE_WORKER_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_DECODE_WORKER_H_

#include <map>
#include <memory>
#include <vector>

#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {

struct DecodeShape {
  std::vector<uint32_t> heads = {2, 2};  // KV heads per layer
  uint32_t group = 2;
  uint32_t dk = 8, dv = 6;
  uint32_t sequences = 3;
  uint32_t capacity = 512;  // rows of each sequence
  uint32_t block_slots = 16;
  bool before_rope = false;   // queries are given before RoPE and turned by the service
  uint32_t query_rows = 512;  // in the tail
};

// What one call says about one sequence.
struct DecodeStep {
  uint64_t id = 1;
  uint32_t rows = 1;  // newest rows whose queries come
  uint32_t drafts = 0;
  uint32_t trigger = 0;
  bool accumulate_only = false;
};

class DecodeWorker {
 public:
  DecodeWorker(EngineWorld& world, const DecodeShape& shape, uint64_t seed = 1);

  const std::shared_ptr<Session>& session() const { return session_; }
  WorkerCache& cache() { return *cache_; }
  const DecodeShape& shape() const { return shape_; }

  // Writes the K and V of the sequence's next `count` tokens behind its rows. Sequences with equal
  // `like` have the same tokens.
  void Append(uint64_t id, uint32_t count);
  void SetLike(uint64_t id, uint64_t like) { like_[id] = like; }
  // The newest tokens never were.
  void TakeBack(uint64_t id, uint32_t count);

  SequenceSpec& sequence(uint64_t id) { return sequences_.at(id); }
  // Per (layer, KV head): the token in each row.
  const std::vector<int32_t>& Tokens(uint64_t id, uint32_t layer, uint32_t head) const {
    return tokens_.at(id)[layer][head];
  }

  // The queries of the newest rows of the sequences go to the inputs' memory. In place.
  ObserveSpec Observe(const PolicySpec* policy, const std::vector<DecodeStep>& steps);
  // The newest `rows` queries of one sequence, in place.
  CompressSpec Compress(const PolicySpec& policy, uint64_t id, uint32_t rows);
  RewindSpec Rewind(uint64_t id, uint32_t rows);

  ObserveAnswer Run(ObserveSpec spec);  // must succeed; follows the answer
  absl::Status TryRun(ObserveSpec spec);
  CompressAnswer Run(CompressSpec spec);
  absl::Status TryRun(CompressSpec spec);
  absl::Status TryRun(RewindSpec spec);
  absl::Status TryRun(RerotateSpec spec);
  // Lengths and rows as an answer says.
  void Follow(const SequenceOutcome& outcome);
  // The same for an answer that moved nothing: the worker drops the rows itself.
  void Drop(const SequenceOutcome& outcome);

  // Reads back K and V of every row and compares them with its token's.
  void CheckRows(uint64_t id);

  // K and V of a layer in the worker's own mapping, over the first `rows` rows.
  LayerRows View(uint64_t id, uint32_t layer, uint32_t rows);
  // Queries [Hq][dk] of a token, before RoPE where the shape says so, and the position they turn
  // to.
  std::vector<float> Query(uint64_t id, uint32_t layer, int32_t token) const;
  // V of a token.
  std::vector<float> ValueOf(uint64_t id, uint32_t layer, uint32_t head, int32_t token) const;
  const Rope* rope() const { return shape_.before_rope ? &cache_->spec().ropes[0] : nullptr; }

 private:
  float Value(uint64_t id, uint32_t layer, uint32_t what, uint32_t head, int32_t token,
              uint32_t elem) const;
  std::vector<float> Key(uint64_t id, uint32_t layer, uint32_t head, int32_t token) const;
  void WriteRow(uint64_t id, uint32_t layer, uint32_t head, uint32_t row, int32_t token);
  void PutQueries(SequenceSpec& sequence, uint32_t rows, uint32_t begin);
  ScoreInputsSpec Inputs() const;

  EngineWorld& world_;
  const DecodeShape shape_;
  const uint64_t seed_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<WorkerCache> cache_;
  std::map<uint64_t, SequenceSpec> sequences_;
  std::map<uint64_t, uint64_t> like_;
  std::map<uint64_t, std::vector<std::vector<std::vector<int32_t>>>> tokens_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_DECODE_WORKER_H_
