// Every call of the C++ client against a real service.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "client/cpp/compress_from_proto.h"
#include "client/cpp/compress_to_proto.h"
#include "client/cpp/idempotency_key.h"
#include "client/cpp/link.h"
#include "client/cpp/local_error.h"
#include "client/cpp/register_memory.h"
#include "gtest/gtest.h"
#include "kernels/core/splitmix64.h"
#include "kvtriage/session.h"
#include "tests/integration/stamped_worker.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"

namespace kvtriage::client {
namespace {

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

class ClientCalls : public testing::Test {
 protected:
  void StartService(const std::vector<std::string>& flags = {}) {
    ASSERT_TRUE(service_.Start(flags));
    options_.endpoint = service_.endpoint();
    session_ = Connect();
    ASSERT_NE(session_, nullptr);
  }
  std::unique_ptr<Session> Connect() {
    auto session = Session::Connect(options_);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  ServiceProcess service_{kServiceProgram};
  ConnectOptions options_;
  std::unique_ptr<Session> session_;
};

TEST_F(ClientCalls, ServerInfoNamesPoliciesDeviceAndLimits) {
  StartService();
  const auto info = session_->GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->epoch, session_->state().epoch);
  EXPECT_EQ(info->devices.at(0).kind, "cpu");
  EXPECT_TRUE(info->devices.at(0).healthy);
  EXPECT_GT(info->devices.at(0).memory_bytes, 0u);
  EXPECT_EQ(info->limits.max_in_flight, 4u);
  EXPECT_EQ(info->policies.size(), 28u);
  const auto snapkv =
      std::find_if(info->policies.begin(), info->policies.end(),
                   [](const Policy& policy) { return policy.name == "snapkv+obc-joint"; });
  ASSERT_NE(snapkv, info->policies.end());
  EXPECT_EQ(snapkv->parts.scorer->kind, Scorer::Kind::kObcJoint);
}

TEST_F(ClientCalls, StateShowsTheServicesProcess) {
  StartService();
  const SessionState state = session_->state();
  EXPECT_TRUE(state.alive);
  EXPECT_NE(state.epoch, 0u);
  EXPECT_EQ(state.server_pid, service_.process().pid());
  EXPECT_EQ(state.server_uid, geteuid());
  EXPECT_EQ(state.attachments, 1u);
}

TEST_F(ClientCalls, LendsListsAndTakesBack) {
  StartService();
  StampedWorker worker(2, 64);
  worker.Lend(*session_);
  EXPECT_EQ(service_.Metric("kvtriage_mapped_bytes"), worker.memory().size());
  const auto listed = session_->ListRegions();
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->regions.size(), 1u);
  EXPECT_EQ(listed->regions[0].region, worker.regions()[0]);
  EXPECT_EQ(listed->regions[0].size, worker.memory().size());
  EXPECT_EQ(listed->regions[0].access, Access::kReadWrite);
  ASSERT_EQ(listed->caches.size(), 1u);
  EXPECT_EQ(listed->caches[0].cache, worker.cache());
  EXPECT_EQ(listed->caches[0].layers, StampedWorker::kLayers);
  EXPECT_EQ(listed->caches[0].regions, worker.regions());

  ASSERT_TRUE(session_->Unregister(worker.regions(), {}).ok());
  EXPECT_EQ(service_.Metric("kvtriage_mapped_bytes"), 0);  // OK means closed
  EXPECT_TRUE(session_->ListRegions()->regions.empty());
  EXPECT_TRUE(session_->ListRegions()->caches.empty());          // went with its region
  EXPECT_TRUE(session_->Unregister(worker.regions(), {}).ok());  // again: nothing left to do
  const CompressOutcome stale = session_->Compress(worker.Request({worker.Of(0)}, 16));
  EXPECT_EQ(stale.outcome, Outcome::kUnchanged);
  EXPECT_EQ(stale.status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetErrorDetails(stale.status)->reason, "memory_unknown");
}

TEST_F(ClientCalls, RegistrationIsAllOrNothingAndNamesTheField) {
  StartService();
  StampedWorker worker(1, 64);
  CacheSpec bad = worker.Describe();
  bad.layers[1].v.offset = worker.memory().size() - sizeof(float);
  const auto lent = session_->Register({{worker.memory().Lend()}, {bad}});
  EXPECT_EQ(lent.status().code(), absl::StatusCode::kOutOfRange) << lent.status();
  const auto details = GetErrorDetails(lent.status());
  ASSERT_TRUE(details.has_value());
  EXPECT_TRUE(details->unharmed);
  EXPECT_EQ(details->server_epoch, session_->state().epoch);
  EXPECT_NE(details->field.find("layers[1].v"), std::string::npos) << details->field;
  EXPECT_TRUE(session_->ListRegions()->regions.empty());
  EXPECT_EQ(service_.Metric("kvtriage_mapped_bytes"), 0);
}

TEST_F(ClientCalls, ThirtyTwoRegionsGoInOneCall) {
  StartService();
  const auto memory = HostMemory::Create(32 * 4096);
  ASSERT_TRUE(memory.ok());
  Registration what;
  for (uint64_t i = 0; i < 32; ++i) {
    RegionSpec region = memory->Lend(Access::kRead, static_cast<uint32_t>(i));
    region.offset = i * 4096;
    region.size = 4096;
    what.regions.push_back(region);
  }
  const auto lent = session_->Register(what);
  ASSERT_TRUE(lent.ok()) << lent.status();
  memory->data()[31 * 4096] = std::byte{7};
  const auto last = session_->Checksum(lent->regions[31], 0, 1);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(*last, (0xcbf29ce484222325u ^ 7) * 0x100000001b3u);
  what.regions.push_back(what.regions[0]);
  EXPECT_EQ(session_->Register(what).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(session_->UnregisterAll().ok());
  EXPECT_TRUE(session_->ListRegions()->regions.empty());
}

TEST_F(ClientCalls, BothSidesTouchTheSameBytes) {
  StartService();
  const auto memory = HostMemory::Create(1 << 16);
  ASSERT_TRUE(memory.ok());
  const auto lent = session_->Register({{memory->Lend()}, {}});
  ASSERT_TRUE(lent.ok()) << lent.status();
  ASSERT_TRUE(session_->WritePattern(lent->regions[0], 8, 64, 5).ok());
  for (uint64_t i = 0; i < 8; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, memory->data() + 8 + i * 8, 8);
    EXPECT_EQ(word, SplitMix64(5 + i, 0));
  }
  EXPECT_EQ(memory->data()[7], std::byte{0});
  EXPECT_EQ(memory->data()[72], std::byte{0});
  EXPECT_EQ(session_->Checksum(lent->regions[0], 1 << 16, 1).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(ClientCalls, CompressesInPlaceAndSaysWhatStayed) {
  StartService();
  StampedWorker worker(3, 100);
  worker.Lend(*session_);
  const CompressOutcome outcome =
      session_->Compress(worker.Request({worker.Of(0), worker.Of(1), worker.Of(2)}, 40));
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  ASSERT_TRUE(outcome.result.has_value());
  EXPECT_TRUE(outcome.damaged().empty());
  const std::vector<int32_t> rows = StampedWorker::StreamingRows(100, 40);
  for (uint32_t i = 0; i < 3; ++i) {
    const SequenceResult& result = outcome.result->sequences[i];
    EXPECT_EQ(result.kept, 40u);
    EXPECT_EQ(result.dropped, 60u);
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (uint32_t head = 0; head < 2; ++head) EXPECT_EQ(result.kept_sets.At(layer, head), rows);
    }
    worker.ExpectTokens(worker.Of(i), i, rows);
    EXPECT_EQ(outcome.fates[i].table, result.table);
  }
  EXPECT_EQ(outcome.result->policy.scorer->kind, Scorer::Kind::kRecency);
}

// https://github.com/sgl-project/mini-sglang/pull/142
TEST_F(ClientCalls, FreedPagesAreNotLeftInTheTable) {
  StartService();
  StampedWorker worker(2, 100);  // 7 blocks of 16 and one spare
  worker.Lend(*session_);
  const Sequence before = worker.Of(1);
  const CompressOutcome outcome = session_->Compress(worker.Request({before}, 40));
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  const SequenceResult& result = outcome.result->sequences[0];
  EXPECT_EQ(result.blocks_used, 3u);  // 40 rows
  EXPECT_EQ(result.table, std::vector<int32_t>(before.table.begin(), before.table.begin() + 3));
  for (const uint32_t entry : result.rewritten) EXPECT_LT(entry, 3u);
}

// https://github.com/NVIDIA/TensorRT-LLM/pull/15697
// https://github.com/rajveer43/VeloxQuant-MLX/pull/196
// https://github.com/rajveer43/VeloxQuant-MLX/issues/137 https://github.com/NVIDIA/kvpress/pull/118
TEST_F(ClientCalls, LogicalAndPhysicalLengthGoTheirOwnWays) {
  StartService();
  StampedWorker worker(1, 100);
  worker.Lend(*session_);
  Sequence sequence = worker.Of(0);
  const CompressOutcome first = session_->Compress(worker.Request({sequence}, 40));
  ASSERT_EQ(first.outcome, Outcome::kApplied) << first.status;
  EXPECT_EQ(first.result->sequences[0].kept, 40u);
  EXPECT_EQ(first.result->sequences[0].dropped, 60u);
  EXPECT_EQ(first.result->sequences[0].next_position, 100u);

  sequence.physical_len = 40;
  sequence.kv_revision = first.result->sequences[0].kv_revision;
  worker.Append(sequence, 0);  // row 40, token 100
  const CompressOutcome second = session_->Compress(worker.Request({sequence}, 30));
  ASSERT_EQ(second.outcome, Outcome::kApplied) << second.status;
  const SequenceResult& result = second.result->sequences[0];
  EXPECT_EQ(result.kept_sets.At(0, 0), StampedWorker::StreamingRows(41, 30));
  EXPECT_EQ(result.dropped, 11u);
  EXPECT_EQ(result.total_dropped, 71u);
  EXPECT_EQ(result.next_position, 101u);
  std::vector<int32_t> tokens = {0, 1, 2, 3};
  for (int32_t token = 75; token <= 100; ++token) tokens.push_back(token);
  worker.ExpectTokens(sequence, 0, tokens);

  Sequence stale = worker.Of(0);
  const CompressOutcome third = session_->Compress(worker.Request({stale}, 30));
  EXPECT_EQ(third.outcome, Outcome::kUnchanged);
  EXPECT_EQ(third.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetails(third.status)->reason, "sequence_stale");
  worker.ExpectTokens(sequence, 0, tokens);
}

TEST_F(ClientCalls, SelectOnlyAndCopyLeaveTheSourceAlone) {
  StartService();
  StampedWorker worker(2, 100);
  worker.Lend(*session_);
  CompressRequest request = worker.Request({worker.Of(0)}, 40);
  request.act = SelectOnly{};
  const CompressOutcome selected = session_->Compress(request);
  ASSERT_EQ(selected.outcome, Outcome::kApplied) << selected.status;
  EXPECT_EQ(selected.result->sequences[0].kept_sets.At(1, 1),
            StampedWorker::StreamingRows(100, 40));
  EXPECT_EQ(selected.result->sequences[0].table, worker.Of(0).table);
  worker.ExpectUntouched(0);

  // Into sequence 1's blocks, which nobody uses.
  Sequence sequence = worker.Of(0);
  sequence.destination = worker.Of(1).table;
  request = worker.Request({sequence}, 40);
  request.act = CopyTo{worker.cache()};
  const CompressOutcome copied = session_->Compress(request);
  ASSERT_EQ(copied.outcome, Outcome::kApplied) << copied.status;
  worker.ExpectUntouched(0);
  Sequence copy = worker.Of(0);
  copy.table = copied.result->sequences[0].table;
  EXPECT_EQ(copy.table.size(), 3u);
  EXPECT_EQ(copy.table[0], sequence.destination[0]);
  worker.ExpectTokens(copy, 0, StampedWorker::StreamingRows(100, 40));
}

TEST_F(ClientCalls, EveryFormatSaysTheSame) {
  StartService();
  StampedWorker worker(3, 100);
  worker.Lend(*session_);
  CompressRequest request = worker.Request({worker.Of(0), worker.Of(1)}, 40);
  request.act = SelectOnly{};
  request.policy = NamedPolicyTokens("keydiff", 37);
  const CompressOutcome indices = session_->Compress(request);
  ASSERT_EQ(indices.outcome, Outcome::kApplied) << indices.status;
  request.kept_format = KeptFormat::kBitmap;
  const CompressOutcome bits = session_->Compress(request);
  ASSERT_EQ(bits.outcome, Outcome::kApplied) << bits.status;
  request.kept_format = KeptFormat::kCounts;
  const CompressOutcome counts = session_->Compress(request);
  ASSERT_EQ(counts.outcome, Outcome::kApplied) << counts.status;
  for (size_t i = 0; i < 2; ++i) {
    const KeptSets& sets = indices.result->sequences[i].kept_sets;
    ASSERT_EQ(sets.lists.size(), 4u);
    EXPECT_EQ(bits.result->sequences[i].kept_sets.lists, sets.lists);
    EXPECT_EQ(bits.result->sequences[i].kept_sets.counts, sets.counts);
    EXPECT_TRUE(counts.result->sequences[i].kept_sets.lists.empty());
    EXPECT_EQ(counts.result->sequences[i].kept_sets.counts, (std::vector<uint32_t>(4, 37)));
  }

  // And the rows move as they do with indices.
  request = worker.Request({worker.Of(2)}, 40);
  request.kept_format = KeptFormat::kCounts;
  const CompressOutcome moved = session_->Compress(request);
  ASSERT_EQ(moved.outcome, Outcome::kApplied) << moved.status;
  EXPECT_EQ(moved.fates[0].kept, 40u);
  worker.ExpectTokens(worker.Of(2), 2, StampedWorker::StreamingRows(100, 40));
}

// 4 lists of 300,000 indices are 4.8 MB; as bits 150 kB.
TEST_F(ClientCalls, LongSequencesFitAsBits) {
  StartService();
  constexpr uint32_t kRows = 310'000, kKept = 300'000;
  StampedWorker worker(1, kRows);
  worker.Lend(*session_);
  CompressRequest request = worker.Request({worker.Of(0)}, kKept);
  const CompressOutcome refused = session_->Compress(request);
  EXPECT_EQ(refused.outcome, Outcome::kUnchanged);
  EXPECT_EQ(GetErrorDetails(refused.status)->reason, "result_too_large");
  EXPECT_EQ(GetErrorDetails(refused.status)->limit, 4u << 20);
  EXPECT_GT(GetErrorDetails(refused.status)->got, 4u * 4 * kKept);
  request.kept_format = KeptFormat::kBitmap;
  const CompressOutcome outcome = session_->Compress(request);
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  const std::vector<int32_t> rows = StampedWorker::StreamingRows(kRows, kKept);
  for (const auto& list : outcome.result->sequences[0].kept_sets.lists) EXPECT_EQ(list, rows);
  worker.ExpectTokens(worker.Of(0), 0, rows);
}

TEST_F(ClientCalls, SlidingLayersAreSelectedAndNeverMoved) {
  StartService();
  StampedWorker worker(1, 100);
  worker.Lend(*session_);
  CacheSpec sliding = worker.Describe();
  for (LayerSpec& layer : sliding.layers) {
    layer.k.region = layer.v.region = worker.regions().at(0);
  }
  sliding.layers[1].kind = LayerKind::kSliding;
  sliding.layers[1].sliding_window = 10;
  const absl::StatusOr<Registered> lent = session_->Register({{}, {sliding}});
  ASSERT_TRUE(lent.ok()) << lent.status();
  CompressRequest request = worker.Request({worker.Of(0)}, 40);
  request.cache = lent->caches.at(0);
  const CompressOutcome moved = session_->Compress(request);
  EXPECT_EQ(moved.outcome, Outcome::kUnchanged);
  EXPECT_EQ(GetErrorDetails(moved.status)->reason, "layer_not_movable");
  request.act = SelectOnly{};
  const CompressOutcome selected = session_->Compress(request);
  ASSERT_EQ(selected.outcome, Outcome::kApplied) << selected.status;
  const auto& sets = selected.result->sequences[0].kept_sets;
  EXPECT_EQ(sets.At(0, 1), StampedWorker::StreamingRows(100, 40));
  std::vector<int32_t> window(10);
  std::iota(window.begin(), window.end(), 90);
  EXPECT_EQ(sets.At(1, 0), window);
  EXPECT_EQ(sets.At(1, 1), window);
  worker.ExpectUntouched(0);
}

TEST_F(ClientCalls, ANoopWritesNothing) {
  StartService();
  StampedWorker worker(1, 20);
  worker.Lend(*session_);
  const CompressOutcome outcome = session_->Compress(worker.Request({worker.Of(0)}, 64));
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  EXPECT_TRUE(outcome.result->sequences[0].noop);
  EXPECT_EQ(outcome.fates[0].kept, 20u);
  worker.ExpectUntouched(0);
}

TEST_F(ClientCalls, ErrorsNameReasonFieldAndNumbers) {
  StartService();
  StampedWorker worker(1, 100);
  worker.Lend(*session_);
  Sequence sequence = worker.Of(0);
  sequence.table[3] = 4096;
  const CompressOutcome outcome = session_->Compress(worker.Request({sequence}, 40));
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
  EXPECT_EQ(outcome.fates.at(0).outcome, Outcome::kUnchanged);
  const auto details = GetErrorDetails(outcome.status);
  ASSERT_TRUE(details.has_value()) << outcome.status;
  EXPECT_EQ(details->reason, "block_out_of_range");
  EXPECT_EQ(details->field, "sequences[0].table");
  EXPECT_EQ(details->index, 3u);
  EXPECT_EQ(details->got, 4096u);
  EXPECT_TRUE(details->unharmed);
  worker.ExpectUntouched(0);

  CompressRequest unknown = worker.Request({worker.Of(0)}, 40);
  unknown.policy.name = "no-such-policy";
  EXPECT_EQ(GetErrorDetails(session_->Compress(unknown).status)->reason, "policy_unknown");
  CompressRequest both = worker.Request({worker.Of(0)}, 40);
  both.policy.parts.budget->kept_ratio = 0.5;
  EXPECT_EQ(session_->Compress(both).status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientCalls, SelectsRowsToRecompute) {
  StartService();
  constexpr uint32_t kRows = 20, kWidth = 4;
  const auto memory = HostMemory::Create(2 * kRows * kWidth * sizeof(float));
  ASSERT_TRUE(memory.ok());
  const auto lent = session_->Register({{memory->Lend(Access::kRead)}, {}});
  ASSERT_TRUE(lent.ok()) << lent.status();
  auto* const values = reinterpret_cast<float*>(memory->data());
  for (uint32_t row = 0; row < kRows; ++row) {  // fresh minus cached = row % 5
    for (uint32_t i = 0; i < kWidth; ++i) {
      values[row * kWidth + i] = static_cast<float>(row % 5);
      values[(kRows + row) * kWidth + i] = 0;
    }
  }
  RecomputeRequest request;
  request.fresh = DenseRows{DenseTensor(lent->regions[0], 0, DType::kF32, 1, kRows, 1, kWidth)};
  request.cached = DenseRows{DenseTensor(lent->regions[0], kRows * kWidth * sizeof(float),
                                         DType::kF32, 1, kRows, 1, kWidth)};
  request.rows = kRows;
  request.suffix = 2;
  request.metric = DivergenceMetric::kVL2;
  request.ratio = 0.2;
  const auto result = session_->SelectRecompute(request);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->must, 2u);
  EXPECT_EQ(result->rows.size(), result->must + result->hkvd);
  for (size_t i = 0; i < result->rows.size(); ++i) {
    if (result->is_must[i]) {
      EXPECT_GE(result->rows[i], 18);
    } else {
      EXPECT_EQ(result->rows[i] % 5, 4);  // the rows that differ most
    }
    EXPECT_EQ(result->limits[i], result->rows[i] + 1);
  }
  request.threshold = 1;
  EXPECT_EQ(session_->SelectRecompute(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientCalls, ReleasesSequences) {
  StartService();
  StampedWorker worker(2, 100);
  worker.Lend(*session_);
  ASSERT_EQ(session_->Compress(worker.Request({worker.Of(0)}, 40)).outcome, Outcome::kApplied);
  const auto released = session_->ReleaseSequences({1, 99});
  ASSERT_TRUE(released.ok()) << released.status();
  EXPECT_EQ(released->released, 1u);
  EXPECT_EQ(released->already_gone, 1u);
}

// Eight threads share four ledger slots; nobody is refused and every answer is of its own sequence.
TEST_F(ClientCalls, ManyThreadsShareASession) {
  StartService();
  StampedWorker worker(8, 100);
  worker.Lend(*session_);
  std::atomic<int> applied{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const CompressOutcome outcome = session_->Compress(worker.Request({worker.Of(i)}, 20 + i));
      if (outcome.outcome == Outcome::kApplied && outcome.fates.at(0).kept == 20 + i) ++applied;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(applied, 8);
  for (uint32_t i = 0; i < 8; ++i) {
    worker.ExpectTokens(worker.Of(i), i, StampedWorker::StreamingRows(100, 20 + i));
  }
}

// The reply is cut off while the rows move: the stored answer comes back.
TEST_F(ClientCalls, ADeadlineInTheMoveIsResolvedToTheAnswer) {
  StartService({"--fault=move.mid_rows:delay=2500"});
  StampedWorker worker(1, 100);
  worker.Lend(*session_);
  const CompressOutcome outcome =  // time enough to get to the move
      session_->Compress(worker.Request({worker.Of(0)}, 40), {.deadline_ms = 1500});
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  ASSERT_TRUE(outcome.result.has_value());
  worker.ExpectTokens(worker.Of(0), 0, StampedWorker::StreamingRows(100, 40));
  Sequence next = worker.Of(0);
  next.physical_len = 40;
  next.kv_revision = outcome.fates[0].kv_revision;
  EXPECT_EQ(session_->Compress(worker.Request({next}, 20)).outcome, Outcome::kApplied);
}

TEST_F(ClientCalls, ADeadlineBeforeTheMoveLeavesTheCacheAlone) {
  StartService({"--fault=lane.job_start:delay=600"});
  StampedWorker worker(1, 100);
  worker.Lend(*session_);
  const CompressOutcome outcome =
      session_->Compress(worker.Request({worker.Of(0)}, 40), {.deadline_ms = 200});
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged) << outcome.status;
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kDeadlineExceeded);
  worker.ExpectUntouched(0);
  EXPECT_EQ(session_->Compress(worker.Request({worker.Of(0)}, 40)).outcome, Outcome::kApplied);
}

// https://github.com/grpc/grpc/issues/9767 https://github.com/open-telemetry/oteps/pull/65
TEST_F(ClientCalls, ARepeatedKeyNeverRunsTwice) {
  StartService();
  StampedWorker worker(1, 100);
  const std::atomic<bool> stop{false};
  const auto link = Link::Open(options_, {[](const v1::Notice&) {}, [] {}}, stop);
  ASSERT_TRUE(link.ok()) << link.status();
  MemoryBook book;
  const auto lot = book.Prepare({worker.memory().Lend()}, {worker.Describe()});
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  ASSERT_TRUE(RegisterLot(**link, *lot, true, false, deadline).ok());

  CompressRequest request;
  request.cache = lot->caches[0].cache;
  request.sequences = {worker.Of(0)};
  request.policy = NamedPolicyTokens("streaming", 40);
  request.act = InPlace{};
  const auto send = [&](const IdempotencyKey& key, const CompressRequest& what,
                        bool resolve = false) {
    v1::CompressRequest message = ToProto(what, 0, (*link)->ids());
    message.mutable_header()->set_idempotency_key(std::string(AsBytes(key)));
    message.mutable_header()->set_resolve(resolve);
    v1::CompressResponse response;
    const absl::Status status = (*link)->transport().Call(message, &response, deadline);
    return status.ok() ? absl::StatusOr<v1::CompressResponse>(response) : status;
  };
  const IdempotencyKey key = NewKey();
  const auto first = send(key, request);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->header().replayed());
  worker.ExpectTokens(worker.Of(0), 0, StampedWorker::StreamingRows(100, 40));

  for (const bool resolve : {false, true}) {
    const auto again = send(key, request, resolve);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(again->header().replayed());
    EXPECT_EQ(again->header().job_id(), first->header().job_id());
    EXPECT_EQ(again->results(0).kept_sets().indices_le(),
              first->results(0).kept_sets().indices_le());
    worker.ExpectTokens(worker.Of(0), 0, StampedWorker::StreamingRows(100, 40));
  }
  const absl::Status stale = send(NewKey(), request).status();
  EXPECT_TRUE(HasReason(stale, "sequence_stale")) << stale;
  CompressRequest other = request;
  other.policy = NamedPolicyTokens("streaming", 39);
  const absl::Status reused = send(key, other).status();
  EXPECT_EQ(reused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(HasReason(reused, "key_reused")) << reused;
  // A key that never ran is dead once it was asked about.
  const IdempotencyKey dead = NewKey();
  EXPECT_TRUE(HasReason(send(dead, request, true).status(), "key_dead"));
  EXPECT_TRUE(HasReason(send(dead, request).status(), "key_dead"));
  worker.ExpectTokens(worker.Of(0), 0, StampedWorker::StreamingRows(100, 40));
}

TEST_F(ClientCalls, GoodbyeUnregistersEverything) {
  StartService();
  StampedWorker worker(1, 100);
  worker.Lend(*session_);
  EXPECT_EQ(service_.Metric("kvtriage_sessions"), 1);
  session_.reset();
  EXPECT_TRUE(WaitUntil([&] { return service_.Metric("kvtriage_mapped_bytes") == 0; }, 1000));
  EXPECT_EQ(service_.Metric("kvtriage_sessions"), 0);
  EXPECT_EQ(service_.Metric("kvtriage_sessions_ended_total", "client"), 1);
}

TEST_F(ClientCalls, AForkedChildGetsAnErrorAtOnce) {
  StartService();
  StampedWorker worker(1, 100);
  worker.Lend(*session_);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // a hang would end as SIGALRM
    const CompressOutcome outcome = session_->Compress(worker.Request({worker.Of(0)}, 40));
    const bool right = outcome.outcome == Outcome::kUnavailable &&
                       GetErrorDetails(outcome.status)->reason == "forked" && !session_->alive() &&
                       !session_->GetServerInfo().ok() && !session_->UnregisterAll().ok();
    session_.reset();  // must not join threads that are not there
    _exit(right ? 0 : 1);
  }
  int state = 0;
  waitpid(child, &state, 0);
  EXPECT_TRUE(WIFEXITED(state)) << "signal " << WTERMSIG(state);
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_EQ(session_->Compress(worker.Request({worker.Of(0)}, 40)).outcome, Outcome::kApplied);
}

TEST_F(ClientCalls, ConnectingSaysWhatIsWrong) {
  StartService();
  ConnectOptions missing;
  missing.endpoint = service_.directory().File("none.sock");
  EXPECT_EQ(GetErrorDetails(Session::Connect(missing).status())->reason, "socket_missing");
  ConnectOptions bad_name = options_;
  bad_name.client = "spaces are not allowed";
  const auto refused = Session::Connect(bad_name);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
}

}  // namespace
}  // namespace kvtriage::client
