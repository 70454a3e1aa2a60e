// The whole of a worker whose KV cache lives on a CUDA device, in one page: lend the cache,
// compress a sequence in place, check that the kept rows moved whole.
//   kvtriage_cuda_example [SOCKET]
// Exit codes: 0 done, or there is no device here (it says so); 1 failed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kvtriage/device_memory.h"
#include "kvtriage/session.h"

namespace kv = kvtriage::client;

namespace {

constexpr uint32_t kLayers = 2, kQueryHeads = 4, kHeads = 2, kTokens = 48, kElems = 16, kWindow = 8;
constexpr uint32_t kKept = 16;
constexpr uint64_t kRow = kElems * sizeof(float), kPlane = kHeads * kTokens * kRow;  // K or V
constexpr uint64_t kCache = 2 * kLayers * kPlane;
constexpr uint64_t kQueries = uint64_t{kLayers} * kWindow * kQueryHeads * kRow;
// An engine's tensors lie somewhere in a larger allocation.
constexpr uint64_t kFirst = 4096;

// Ends the program with the reason. An engine would go on uncompressed instead.
void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
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

kv::CompressRequest Request(const kv::Registered& lent) {
  kv::CompressRequest request;
  request.cache = lent.caches[0];
  kv::Sequence sequence;
  sequence.sequence_id = 1;
  sequence.logical_len = sequence.physical_len = kTokens;
  sequence.table = {0};  // contiguous: one block
  sequence.sharing = kv::Sharing::kAllPrivate;
  sequence.rows_count = kWindow;
  request.sequences = {sequence};
  request.policy = kv::NamedPolicyTokens("tova+obc-joint", kKept);
  kv::QueryWindow window;
  window.q = kv::DenseTensor(lent.regions[0], kCache, kv::DType::kF32, kLayers, kWindow,
                             kQueryHeads, kElems);
  window.stage = kv::QueryStage::kAfterRope;
  request.inputs = {window, 0.25};  // 1/sqrt(16)
  request.act = kv::InPlace{};
  return request;
}

// How many rows of `after` are not the bytes of the row that was kept for their place.
int WrongRows(const std::vector<std::byte>& before, const std::vector<std::byte>& after,
              const kv::SequenceResult& result) {
  int wrong = 0;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      uint64_t place = 0;
      for (const int32_t row : result.kept_sets.At(layer, head)) {
        for (const uint64_t plane : {2 * layer, 2 * layer + 1}) {
          const uint64_t rows = plane * kPlane + head * kTokens * kRow;
          wrong += std::memcmp(after.data() + rows + place * kRow,
                               before.data() + rows + static_cast<uint64_t>(row) * kRow, kRow) != 0;
        }
        ++place;
      }
    }
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const auto devices = kv::ListCudaDevices();
  if (!devices.ok()) {
    std::printf("no CUDA device here, nothing done: %s\n",
                std::string(devices.status().message()).c_str());
    return 0;
  }
  kv::ConnectOptions options;
  options.client = "cuda-example/1";
  if (argc > 1) options.endpoint = argv[1];
  const auto session = OrDie(kv::Session::Connect(options));

  // Noise; an engine's kernels compute it. The copy is done when Write returns: before a call, the
  // worker's stream is idle.
  std::vector<float> values((kCache + kQueries) / sizeof(float));
  for (uint64_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 2654435761u) % 1000) / 500 - 1;
  }
  const kv::DeviceMemory memory = OrDie(kv::DeviceMemory::Create(0, kFirst + kCache + kQueries));
  Must(memory.Write(kFirst, std::as_bytes(std::span(values))));

  // An engine has a pointer and no more than that: LendDeviceMemory(pointer, bytes) is enough then.
  const kv::Registered lent =
      OrDie(session->Register({{OrDie(memory.Lend(kFirst, kCache + kQueries))}, {Describe()}}));
  std::vector<std::byte> before(kCache), after(kCache);
  Must(memory.Read(kFirst, before));
  const kv::CompressOutcome outcome = session->Compress(Request(lent));
  std::printf("%s\n", std::string(kv::OutcomeName(outcome.outcome)).c_str());
  if (!outcome.result.has_value()) Must(outcome.status);
  Must(memory.Read(kFirst, after));

  const kv::SequenceResult& result = outcome.result->sequences[0];
  std::printf("%s: %u tokens, %lu rows now, next position %lu\n", (*devices)[0].name.c_str(),
              kTokens, static_cast<unsigned long>(result.kept),
              static_cast<unsigned long>(result.next_position));
  const int wrong = WrongRows(before, after, result);
  std::printf("%d rows with wrong bytes\n", wrong);
  // After OK nobody maps the memory any more; only now it may be freed.
  Must(session->Unregister(lent.regions, {}));
  return wrong == 0 ? 0 : 1;
}
