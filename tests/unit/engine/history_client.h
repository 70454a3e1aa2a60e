// One simulated worker: it grows, compacts, copies, releases and rewrites sequences of its own,
// disturbs its calls in every way a client can, and knows by a model what its memory must hold
// after each answer.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_HISTORY_CLIENT_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_HISTORY_CLIENT_H_

#include <map>
#include <memory>
#include <vector>

#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {

class HistoryClient {
 public:
  HistoryClient(EngineWorld& world, uint64_t seed);
  ~HistoryClient();

  void Step();  // one operation and everything it must answer
  // Every row of every sequence is what the model says.
  void Check();

 private:
  using Stamp = uint64_t;
  struct Sequence {
    uint64_t id = 0;
    uint32_t generation = 0, revision = 0;
    uint64_t dropped = 0;
    uint64_t rows = 0;
    std::vector<int32_t> table;
    std::vector<std::vector<Stamp>> stamps;  // [layer * heads + head][row]
  };
  // What a call asked and how its answer changes the model.
  struct Asked {
    CompressSpec spec;
    std::vector<size_t> sequences;  // into sequences_
  };

  uint64_t Draw(uint64_t limit) { return SplitMix(limit); }
  uint64_t SplitMix(uint64_t limit);
  Stamp NewStamp();
  void Connect();
  int32_t TakeBlock();
  void GiveBack(const std::vector<int32_t>& blocks, size_t from);
  void WriteRow(const Sequence& sequence, uint32_t list, uint64_t row, Stamp stamp);
  std::byte* KeyOf(const std::vector<int32_t>& table, uint32_t list, uint64_t row);
  std::byte* ValueOf(const std::vector<int32_t>& table, uint32_t list, uint64_t row);

  void Append(Sequence& sequence);
  void Begin(Sequence& sequence);
  Asked Ask();
  // The lists that the answer must hold, by sorting.
  std::vector<std::vector<int32_t>> Expected(const CompressSpec& spec, uint64_t rows) const;
  void Apply(const Asked& asked, const CallResult& result);
  void Refused(const Asked& asked, const CallResult& result,
               std::initializer_list<std::string_view> allowed);

  void PlainCall();
  void CallAndRepeat();
  void CallAndResolve();
  void ResolveFirst();
  void CallAndCancel();
  void StaleCall();
  void Release();
  void Die();
  void UnregisterUnderACall();

  EngineWorld& world_;
  const uint64_t seed_;
  uint64_t draws_ = 0, stamps_ = 0, next_id_ = 1;
  std::shared_ptr<Session> session_;
  std::unique_ptr<WorkerCache> cache_;
  std::vector<int32_t> free_;
  std::vector<Sequence> sequences_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_HISTORY_CLIENT_H_
