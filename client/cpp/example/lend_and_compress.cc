// The whole of a worker in one page: lend a KV cache, compress a sequence in place, see what
// stayed.
//   kvtriage_example [SOCKET]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kvtriage/host_memory.h"
#include "kvtriage/session.h"

namespace kv = kvtriage::client;

namespace {

constexpr uint32_t kLayers = 2, kQueryHeads = 4, kHeads = 2, kTokens = 32, kElems = 16, kWindow = 1;
constexpr uint64_t kPlane =
    uint64_t{kHeads} * kTokens * kElems * sizeof(float);  // K or V of a layer
constexpr uint64_t kQueries = uint64_t{kLayers} * kWindow * kQueryHeads * kElems * sizeof(float);

// Ends the program with the reason. An engine would go on uncompressed instead.
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

// K and V of each layer one after another, then the newest queries of every layer.
kv::CacheSpec Describe() {
  kv::CacheSpec cache;
  cache.num_layers = kLayers;
  const kv::Region region = kv::Region::OfThisCall(0);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    kv::LayerSpec spec;
    spec.layer_index = layer;
    spec.q_heads = kQueryHeads;
    spec.kv_heads = kHeads;
    spec.k =
        kv::ContiguousView(region, 2 * layer * kPlane, kHeads, kTokens, kElems, kv::DType::kF32);
    spec.v = kv::ContiguousView(region, (2 * layer + 1) * kPlane, kHeads, kTokens, kElems,
                                kv::DType::kF32);
    cache.layers.push_back(spec);
  }
  return cache;
}

}  // namespace

int main(int argc, char** argv) {
  kv::ConnectOptions options;
  options.client = "example/1";
  if (argc > 1) options.endpoint = argv[1];
  const auto session = OrDie(kv::Session::Connect(options));

  // The cache lives in memory that can be lent. Here it holds noise; an engine computes it.
  const kv::HostMemory memory = OrDie(kv::HostMemory::Create(2 * kLayers * kPlane + kQueries));
  auto* const values = reinterpret_cast<float*>(memory.data());
  for (uint64_t i = 0; i < memory.size() / sizeof(float); ++i) {
    values[i] = static_cast<float>((i * 2654435761u) % 1000) / 500 - 1;
  }
  const kv::Registered lent = OrDie(session->Register({{memory.Lend()}, {Describe()}}));

  kv::CompressRequest request;
  request.cache = lent.caches[0];
  kv::Sequence sequence;
  sequence.sequence_id = 1;
  sequence.logical_len = sequence.physical_len = kTokens;
  sequence.table = {0};  // contiguous: one block
  sequence.sharing = kv::Sharing::kAllPrivate;
  sequence.rows_count = kWindow;
  request.sequences = {sequence};
  request.policy = kv::NamedPolicyTokens("tova+obc-joint", 12);
  kv::QueryWindow window;
  window.q = kv::DenseTensor(lent.regions[0], 2 * kLayers * kPlane, kv::DType::kF32, kLayers,
                             kWindow, kQueryHeads, kElems);
  window.stage = kv::QueryStage::kAfterRope;
  request.inputs = {window, 0.25};  // 1/sqrt(16)
  request.act = kv::InPlace{};

  const kv::CompressOutcome outcome = session->Compress(request);
  std::printf("%s\n", std::string(kv::OutcomeName(outcome.outcome)).c_str());
  if (!outcome.result.has_value()) {
    std::fprintf(stderr, "%s\n", outcome.status.ToString().c_str());
    return 1;
  }
  const kv::SequenceResult& result = outcome.result->sequences[0];
  std::printf("%u tokens, %lu rows now, next position %lu\n", kTokens,
              static_cast<unsigned long>(result.kept),
              static_cast<unsigned long>(result.next_position));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      std::printf("layer %u head %u kept:", layer, head);
      for (const int32_t row : result.kept_sets.At(layer, head)) std::printf(" %d", row);
      std::printf("\n");
    }
  }
  return 0;
}
