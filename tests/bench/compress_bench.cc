// The control plane's share: a Compress that has nothing to do (the budget covers the sequence)
// against a call of the same service that does nothing at all. compress_bench SOCKET
#include <cstdio>

#include "kvtriage/host_memory.h"
#include "kvtriage/session.h"
#include "tests/bench/ratio.h"

namespace kvtriage::bench {
namespace {

using namespace kvtriage::client;  // NOLINT(google-build-using-namespace): the client's own bench

constexpr uint32_t kRows = 64, kHeads = 8, kHeadSize = 128, kCalls = 200;

template <typename Result>
Result OrExit(absl::StatusOr<Result> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "compress_bench: %s\n", result.status().ToString().c_str());
    std::exit(2);
  }
  return *std::move(result);
}

CompressRequest NothingToDo(Session& session, const HostMemory& memory) {
  const uint64_t plane = uint64_t{kRows} * kHeads * kHeadSize * 2;
  LayerSpec layer;
  layer.q_heads = layer.kv_heads = kHeads;
  layer.k = ContiguousView(Region::OfThisCall(0), 0, kHeads, kRows, kHeadSize, DType::kF16);
  layer.v = ContiguousView(Region::OfThisCall(0), plane, kHeads, kRows, kHeadSize, DType::kF16);
  CacheSpec cache;
  cache.layers = {layer};
  cache.num_layers = 1;
  const Registered lent = OrExit(session.Register({{memory.Lend()}, {cache}}));
  CompressRequest request;
  request.cache = lent.caches.front();
  Sequence sequence;
  sequence.sequence_id = 1;
  sequence.logical_len = sequence.physical_len = kRows;
  sequence.table = {0};
  sequence.sharing = Sharing::kAllPrivate;
  request.sequences = {sequence};
  request.policy = NamedPolicyTokens("streaming", kRows);
  request.act = InPlace{};
  return request;
}

int Main(const char* socket) {
  const auto session = OrExit(Session::Connect({.endpoint = socket}));
  const HostMemory memory =
      OrExit(HostMemory::Create(uint64_t{2} * kRows * kHeads * kHeadSize * 2));
  const CompressRequest request = NothingToDo(*session, memory);
  Report report;
  report.Measure(
      {"Compress with no work, share of an empty call's rate", std::nullopt, std::nullopt}, 20,
      [&] {
        const double empty = Seconds([&] {
          for (uint32_t i = 0; i < kCalls; ++i) OrExit(session->ReleaseSequences({2}));
        });
        const double compress = Seconds([&] {
          for (uint32_t i = 0; i < kCalls; ++i) {
            const CompressOutcome outcome = session->Compress(request);
            if (!outcome.status.ok()) std::exit(2);
          }
        });
        return Slice{kCalls / compress, kCalls / empty};
      });
  return report.ExitCode();
}

}  // namespace
}  // namespace kvtriage::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: compress_bench SOCKET\n");
    return 2;
  }
  return kvtriage::bench::Main(argv[1]);
}
