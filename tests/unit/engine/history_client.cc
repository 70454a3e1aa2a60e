#include "tests/unit/engine/history_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <numeric>
#include <thread>

#include "kernels/core/splitmix64.h"

namespace kvtriage {
namespace {

constexpr uint32_t kLayers = 2, kHeads = 2, kLists = kLayers * kHeads;
constexpr uint32_t kBlocks = 96, kSlots = 4;
constexpr uint64_t kMostRows = 40;
const CacheShape kShape = {.blocks = kBlocks, .block_slots = kSlots, .dk = 2, .dv = 4};

}  // namespace

HistoryClient::HistoryClient(EngineWorld& world, uint64_t seed) : world_(world), seed_(seed) {
  Connect();
}

HistoryClient::~HistoryClient() = default;

uint64_t HistoryClient::SplitMix(uint64_t limit) { return SplitMix64(seed_, draws_++) % limit; }

HistoryClient::Stamp HistoryClient::NewStamp() { return seed_ << 32 | ++stamps_; }

// A new session with new memory: what a worker does after it, or its lease, died.
void HistoryClient::Connect() {
  session_ = world_.Attach();
  cache_ = std::make_unique<WorkerCache>(session_, kShape, seed_ + stamps_, 4096);
  free_.resize(kBlocks);
  std::iota(free_.begin(), free_.end(), 0);
  sequences_.clear();
  for (int i = 0; i < 4; ++i) Begin(sequences_.emplace_back());
}

int32_t HistoryClient::TakeBlock() {
  const size_t at = Draw(free_.size());
  std::swap(free_[at], free_.back());
  const int32_t block = free_.back();
  free_.pop_back();
  return block;
}

void HistoryClient::GiveBack(const std::vector<int32_t>& blocks, size_t from) {
  free_.insert(free_.end(), blocks.begin() + static_cast<ptrdiff_t>(from), blocks.end());
}

std::byte* HistoryClient::KeyOf(const std::vector<int32_t>& table, uint32_t list, uint64_t row) {
  const LayerSpec& layer = cache_->spec().layers[list / kHeads];
  const KvView view{cache_->lent().data() + layer.k.offset, layer.k.layout};
  return RowAddress(view, {table.data(), 0, 0}, list % kHeads, row);
}

std::byte* HistoryClient::ValueOf(const std::vector<int32_t>& table, uint32_t list, uint64_t row) {
  const LayerSpec& layer = cache_->spec().layers[list / kHeads];
  const KvView view{cache_->lent().data() + layer.v.offset, layer.v.layout};
  return RowAddress(view, {table.data(), 0, 0}, list % kHeads, row);
}

void HistoryClient::WriteRow(const Sequence& sequence, uint32_t list, uint64_t row, Stamp stamp) {
  std::memcpy(KeyOf(sequence.table, list, row), &stamp, 8);
  const Stamp value[] = {~stamp, stamp * 3};
  std::memcpy(ValueOf(sequence.table, list, row), value, 16);
}

void HistoryClient::Append(Sequence& sequence) {
  const uint64_t room = kMostRows - std::min(kMostRows, sequence.rows);
  for (uint64_t more = Draw(std::min<uint64_t>(room, 16) + 1); more > 0; --more) {
    if (sequence.rows == sequence.table.size() * kSlots) sequence.table.push_back(TakeBlock());
    for (uint32_t list = 0; list < kLists; ++list) {
      const Stamp stamp = NewStamp();
      sequence.stamps[list].push_back(stamp);
      WriteRow(sequence, list, sequence.rows, stamp);
    }
    ++sequence.rows;
  }
}

void HistoryClient::Begin(Sequence& sequence) {
  sequence = {};
  sequence.id = next_id_++;
  sequence.stamps.resize(kLists);
  Append(sequence);
}

HistoryClient::Asked HistoryClient::Ask() {
  Asked asked;
  asked.sequences.push_back(Draw(sequences_.size()));
  if (Draw(3) == 0) {
    asked.sequences.push_back((asked.sequences[0] + 1 + Draw(sequences_.size() - 1)) %
                              sequences_.size());
  }
  std::vector<SequenceSpec> specs;
  const uint64_t act = Draw(8);
  for (const size_t index : asked.sequences) {
    const Sequence& sequence = sequences_[index];
    SequenceSpec spec =
        cache_->Sequence(sequence.id, static_cast<uint32_t>(sequence.rows), sequence.table);
    spec.generation = sequence.generation;
    spec.kv_revision = sequence.revision;
    spec.total_dropped = sequence.dropped;
    spec.logical_len = sequence.rows + sequence.dropped;
    if (act == 7) {
      for (size_t i = 0; i < sequence.table.size(); ++i) spec.destination.push_back(TakeBlock());
    }
    specs.push_back(std::move(spec));
  }
  asked.spec = RandomSpec(*cache_, std::move(specs), 1 + static_cast<uint32_t>(Draw(30)), Draw(99));
  asked.spec.policy.granularity = static_cast<Granularity>(Draw(3));
  if (asked.spec.policy.budget.kept_tokens > 6u) {
    asked.spec.policy.protect = {static_cast<uint32_t>(Draw(3)), static_cast<uint32_t>(Draw(3)), 0};
  }
  if (act < 6) ActInPlace(asked.spec, static_cast<uint32_t>(Draw(4)));
  if (act == 7) ActCopy(asked.spec, cache_->id());
  return asked;
}

std::vector<std::vector<int32_t>> HistoryClient::Expected(const CompressSpec& spec,
                                                          uint64_t rows) const {
  const auto n = static_cast<int32_t>(rows);
  const auto kept = std::min(static_cast<int32_t>(*spec.policy.budget.kept_tokens), n);
  std::vector<std::vector<float>> scores(kLists, std::vector<float>(rows));
  for (uint32_t list = 0; list < kLists; ++list) {
    for (uint64_t p = 0; p < rows; ++p) {
      scores[list][p] = static_cast<float>(
          SplitMix64(spec.policy.score.random_key, (uint64_t{list} << 32) + p) >> 40);
    }
  }
  const uint32_t share = spec.policy.granularity == Granularity::kPerHead    ? 1
                         : spec.policy.granularity == Granularity::kPerLayer ? kHeads
                                                                             : kLists;
  std::vector<std::vector<int32_t>> lists;
  for (uint32_t first = 0; first < kLists; first += share) {
    std::vector<float> sum(rows);
    for (uint32_t list = first; list < first + share; ++list) {
      for (uint64_t p = 0; p < rows; ++p) sum[p] += scores[list][p];
    }
    const auto sinks = static_cast<int32_t>(spec.policy.protect.sinks);
    const auto newest = n - static_cast<int32_t>(spec.policy.protect.recent);
    std::vector<int32_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const bool protect_a = a < sinks || a >= newest, protect_b = b < sinks || b >= newest;
      return protect_a != protect_b ? protect_a : sum[a] > sum[b];
    });
    order.resize(static_cast<size_t>(kept));
    std::sort(order.begin(), order.end());
    lists.push_back(std::move(order));
  }
  return lists;
}

void HistoryClient::Apply(const Asked& asked, const CallResult& result) {
  ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
  const CompressAnswer& answer = CompressOf(result);
  ASSERT_EQ(answer.sequences.size(), asked.sequences.size());
  for (size_t i = 0; i < asked.sequences.size(); ++i) {
    Sequence& sequence = sequences_[asked.sequences[i]];
    const SequenceOutcome& outcome = answer.sequences[i];
    const auto expected = Expected(asked.spec, sequence.rows);
    ASSERT_EQ(outcome.triage.kept, expected);
    ASSERT_EQ(outcome.kept, expected[0].size());
    ASSERT_EQ(outcome.physical_len, sequence.rows);
    const bool noop = expected[0].size() == sequence.rows;
    ASSERT_EQ(outcome.triage.noop, noop);
    const bool writes = asked.spec.act.kind != ActKind::kSelectOnly && !noop;
    ASSERT_EQ(outcome.kv_revision, sequence.revision + (writes ? 1 : 0));
    sequence.revision = outcome.kv_revision;
    std::vector<int32_t> spare = asked.spec.sequences[i].destination;
    // After a copy the worker goes on with either; what it does not use is free again.
    if (writes && !(asked.spec.act.kind == ActKind::kCopy && Draw(2) == 0)) {
      for (uint32_t list = 0; list < kLists; ++list) {
        const std::vector<int32_t>& kept = outcome.triage.ListOf(list / kHeads, list % kHeads);
        std::vector<Stamp> moved;
        for (const int32_t row : kept) moved.push_back(sequence.stamps[list][row]);
        sequence.stamps[list] = std::move(moved);
      }
      sequence.dropped += sequence.rows - outcome.kept;
      sequence.rows = outcome.kept;
      if (asked.spec.act.kind == ActKind::kCopy) std::swap(sequence.table, spare);
      ASSERT_EQ(outcome.blocks_used, (sequence.rows + kSlots - 1) / kSlots);
      GiveBack(sequence.table, outcome.blocks_used);
      sequence.table.resize(outcome.blocks_used);
    }
    GiveBack(spare, 0);
  }
}

void HistoryClient::Refused(const Asked& asked, const CallResult& result,
                            std::initializer_list<std::string_view> allowed) {
  const std::string reason = ReasonOf(result.status);
  ASSERT_NE(std::find(allowed.begin(), allowed.end(), reason), allowed.end())
      << "answered: " << result.status.ToString();
  EXPECT_EQ(GetErrorInfo(result.status)->cache_state, CacheState::kUnharmed);
  for (const SequenceSpec& sequence : asked.spec.sequences) GiveBack(sequence.destination, 0);
}

void HistoryClient::Check() {
  for (const Sequence& sequence : sequences_) {
    for (uint32_t list = 0; list < kLists; ++list) {
      for (uint64_t row = 0; row < sequence.rows; ++row) {
        const Stamp stamp = sequence.stamps[list][row];
        const Stamp value[] = {~stamp, stamp * 3};
        ASSERT_EQ(std::memcmp(KeyOf(sequence.table, list, row), &stamp, 8), 0)
            << "sequence " << sequence.id << " list " << list << " row " << row;
        ASSERT_EQ(std::memcmp(ValueOf(sequence.table, list, row), value, 16), 0);
      }
    }
  }
}

// ---- operations
// -----------------------------------------------------------------------------------

void HistoryClient::Step() {
  Append(sequences_[Draw(sequences_.size())]);
  const uint64_t operation = Draw(16);
  SCOPED_TRACE("client " + std::to_string(seed_) + " operation " + std::to_string(operation) +
               " draw " + std::to_string(draws_));
  switch (operation) {
    case 0:
      CallAndRepeat();
      break;
    case 1:
      CallAndResolve();
      break;
    case 2:
      ResolveFirst();
      break;
    case 3:
    case 4:
      CallAndCancel();
      break;
    case 5:
      StaleCall();
      break;
    case 6:
      Release();
      break;
    case 7:
      if (Draw(4) == 0) {
        Die();
      } else {
        UnregisterUnderACall();
      }
      break;
    default:
      PlainCall();
  }
  Check();
}

void HistoryClient::PlainCall() {
  const Asked asked = Ask();
  Apply(asked, RunCall(world_, session_, asked.spec));
}

void HistoryClient::CallAndRepeat() {
  const Asked asked = Ask();
  PendingCall call = Start(world_, session_, asked.spec);
  PendingCall repeat = Start(world_, session_, asked.spec);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, asked.spec, 2).status), "key_reused");
  const CallResult result = call.Get();
  EXPECT_EQ(repeat.Get().answer, result.answer);
  Apply(asked, result);
  EXPECT_EQ(RunCall(world_, session_, asked.spec).answer, result.answer);
}

void HistoryClient::CallAndResolve() {
  const Asked asked = Ask();
  PendingCall call = Start(world_, session_, asked.spec);
  const CallResult resolved = Resolve(world_, session_, asked.spec.header.key).Get();
  const CallResult result = call.Get();
  if (resolved.status.ok()) {
    EXPECT_EQ(resolved.answer, result.answer);
    Apply(asked, result);
  } else {
    Refused(asked, resolved, {"key_dead"});
    EXPECT_EQ(ReasonOf(result.status), "key_dead");
    EXPECT_EQ(ReasonOf(RunCall(world_, session_, asked.spec).status), "key_dead");
  }
}

void HistoryClient::ResolveFirst() {
  const Asked asked = Ask();
  EXPECT_EQ(ReasonOf(Resolve(world_, session_, asked.spec.header.key).Get().status), "key_dead");
  Refused(asked, RunCall(world_, session_, asked.spec), {"key_dead"});
}

void HistoryClient::CallAndCancel() {
  const Asked asked = Ask();
  const bool by_deadline = Draw(2) == 0;
  const absl::Duration deadline = by_deadline ? absl::Microseconds(Draw(300)) : absl::Seconds(30);
  PendingCall call = Start(world_, session_, asked.spec, 1, deadline);
  if (!by_deadline) {
    for (uint64_t i = Draw(30); i > 0; --i) std::this_thread::yield();
    call.cancelled->store(true);
  }
  const CallResult result = call.Get();
  if (result.status.ok()) {
    Apply(asked, result);
  } else {
    Refused(asked, result, {"key_dead", "deadline_unmeetable"});
  }
}

void HistoryClient::StaleCall() {
  Asked asked = Ask();
  SequenceSpec& sequence = asked.spec.sequences.back();
  if (sequence.kv_revision == 0) {
    Apply(asked, RunCall(world_, session_, asked.spec));
    return;
  }
  if (Draw(2) == 0) {
    --sequence.kv_revision;
  } else {
    sequence.total_dropped += kMostRows;  // more than any call could have dropped since
    sequence.logical_len += kMostRows;
  }
  Refused(asked, RunCall(world_, session_, asked.spec), {"sequence_stale"});
}

// Blocks are reused as soon as the release has returned; whatever was written later would show.
void HistoryClient::Release() {
  const Asked asked = Ask();
  PendingCall call = Start(world_, session_, asked.spec);
  std::vector<uint64_t> ids;
  for (const size_t index : asked.sequences) ids.push_back(sequences_[index].id);
  std::promise<void> promise;
  world_.engine().ReleaseSequences(session_, ids, [&](Engine::Released) { promise.set_value(); });
  promise.get_future().wait();
  const CallResult result = call.Get();  // may come after: the rows are what counts
  if (result.status.ok()) {
    Apply(asked, result);
  } else {
    Refused(asked, result, {"sequence_released"});
  }
  Check();
  for (const size_t index : asked.sequences) {
    GiveBack(sequences_[index].table, 0);
    Begin(sequences_[index]);
  }
}

// The session ends under a call. Once it is closed its memory is the worker's alone.
void HistoryClient::Die() {
  const Asked asked = Ask();
  PendingCall call = Start(world_, session_, asked.spec);
  world_.sessions().End(session_, EndCause::kPeerDied);
  const CallResult result = call.Get();
  if (result.status.ok()) {
    Apply(asked, result);
  } else {
    Refused(asked, result, {"session_ended", "memory_unknown"});
  }
  Check();
  Connect();
}

void HistoryClient::UnregisterUnderACall() {
  const Asked asked = Ask();
  PendingCall call = Start(world_, session_, asked.spec);
  UnregisterSpec spec;
  spec.region_ids = {cache_->lent().region_id()};
  std::promise<absl::Status> promise;
  session_->memory().Unregister(spec, 20'000, [&](absl::StatusOr<UnregisterCounts> counts) {
    promise.set_value(counts.status());
  });
  EXPECT_TRUE(promise.get_future().get().ok());
  const CallResult result = call.Get();
  if (result.status.ok()) {
    Apply(asked, result);
  } else {
    Refused(asked, result, {"memory_unknown"});
  }
  Check();
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, Ask().spec).status), "memory_unknown");
  world_.sessions().End(session_, EndCause::kClient);
  Connect();
}

}  // namespace kvtriage
