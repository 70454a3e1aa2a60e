#include "tests/gpu/timed_calls.h"

#include <memory>
#include <numeric>
#include <random>

#include "kernels/core/rope_speeds.h"
#include "kernels/cuda/compact.h"
#include "kernels/cuda/divergence.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/rotate.h"
#include "kernels/cuda/score.h"
#include "kernels/cuda/select.h"
#include "tests/gpu/device.h"

namespace kvtriage::gpu {
namespace {

constexpr uint32_t kBlockSlots = 16, kElementBytes = 2;

// K and V of all layers in blocks of 16, in a shuffled order; every bit of it zero.
struct Cache {
  Cache(const TimedShape& wanted, cudaStream_t stream) : shape(wanted), memory(CacheBytes(wanted)) {
    Must(cudaMemsetAsync(memory.data(), 0, memory.size(), stream), "cudaMemsetAsync");
    Finish(stream);
    const uint32_t blocks = (shape.tokens + kBlockSlots - 1) / kBlockSlots;
    table.resize(blocks);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    const uint64_t row = uint64_t{shape.row_elems} * kElementBytes;
    layout = {.block_stride = kBlockSlots * shape.kv_heads * row,
              .head_stride = row,
              .slot_stride = shape.kv_heads * row,
              .elem_stride = kElementBytes,
              .num_blocks = blocks,
              .block_slots = kBlockSlots,
              .heads = shape.kv_heads,
              .row_elems = shape.row_elems,
              .dtype = DType::kBF16};
    for (uint32_t p = 0; p < shape.tokens; ++p) {
      if (p % 2 == 1) odd.push_back(static_cast<int32_t>(p));
      if (p % 20 < 3) some.push_back(static_cast<int32_t>(p));
    }
  }
  // View `number` of 2 * layers: K and V of layer 0, of layer 1, ...
  KvView View(uint32_t number) const {
    return {
        memory.data() + number * (uint64_t{layout.num_blocks} * layout.block_stride), layout, {}};
  }
  SequenceRows Rows() const { return {table.data(), 0, shape.tokens}; }
  // Of K and V of `layers` layers.
  uint64_t RowBytes(uint32_t layers) const {
    return uint64_t{2} * layers * shape.kv_heads * shape.row_elems * kElementBytes;
  }

  const TimedShape shape;
  const DeviceBuffer memory;
  std::vector<int32_t> table, odd, some;  // odd: every second row; some: 15 % of the rows
  ViewLayout layout;
  Rope rope;
};

TimedCall Compact(const std::shared_ptr<Cache>& cache, uint32_t layers, Workspace& workspace) {
  std::vector<MoveRequest> requests;
  for (uint32_t view = 0; view < 2 * layers; ++view) {
    requests.push_back({cache->View(view), cache->Rows(), cache->View(view), cache->Rows(),
                        std::vector<std::span<const int32_t>>(cache->shape.kv_heads, cache->odd)});
  }
  const bool all = layers > 1;
  return {all ? "compact K and V, keep half, all layers" : "compact K and V, keep half, one layer",
          2 * cache->RowBytes(layers) * cache->odd.size(), all ? 0.70 : 0.50, all ? 0.85 : 0.70,
          [cache, requests, &workspace] {
            MoveResult result;
            return CudaMoveRows(requests, workspace, result);
          }};
}

TimedCall Diverge(const std::shared_ptr<Cache>& cache, Workspace& workspace) {
  std::vector<int32_t> rows(cache->shape.tokens);
  std::iota(rows.begin(), rows.end(), 0);
  return {"divergence of V, one layer", cache->RowBytes(1) * cache->shape.tokens, 0.80, 0.90,
          [cache, rows, &workspace] {
            DivergenceResult result;
            return CudaDivergeRows({.fresh = {cache->View(0), cache->Rows(), 0},
                                    .cached = {cache->View(1), cache->Rows(), 0},
                                    .rows = rows},
                                   workspace, result);
          }};
}

// Half of the rows get a new position; the pass that a renumbering Compress adds.
TimedCall Rotate(const std::shared_ptr<Cache>& cache, Workspace& workspace) {
  cache->rope = {.rotary_dim = cache->shape.row_elems,
                 .speeds = RopeSpeeds({.theta = 5e5}, cache->shape.row_elems)};
  RotateRequest request;
  for (uint32_t layer = 0; layer < cache->shape.layers; ++layer) {
    request.keys.push_back(cache->View(2 * layer));
  }
  request.rows = cache->Rows();
  request.count = static_cast<uint32_t>(cache->odd.size());
  request.rope = &cache->rope;
  request.from = {0, cache->odd.data(), request.count};
  return {"rotate kept K, all layers", cache->RowBytes(cache->shape.layers) * request.count, 0, 0,
          [cache, request, &workspace] {
            RotateResult result;
            return CudaRotateKeys({&request, 1}, workspace, result);
          }};
}

// Rows of the first half of the layers over those of the second.
TimedCall Fuse(const std::shared_ptr<Cache>& cache, Workspace& workspace) {
  std::vector<RowCopy> copies;
  const auto count = static_cast<uint32_t>(cache->some.size());
  for (uint32_t view = 0; view < cache->shape.layers; ++view) {
    copies.push_back({cache->View(view), cache->Rows(), cache->some,
                      cache->View(cache->shape.layers + view), cache->Rows(), cache->some, count});
  }
  return {"fuse 15 %, half of the layers", cache->RowBytes(cache->shape.layers) * count, 0.70, 0.85,
          [cache, copies, &workspace] {
            RowCopyResult result;
            return CudaCopyRows(copies, workspace, result);
          }};
}

// Joint scores of all layers from given O and LSE; queries are zeros, so that every token weighs
// the same. Many rows are judged by their products, few by the bytes of K and V.
TimedCall Score(const std::shared_ptr<Cache>& cache, uint32_t window, Workspace& workspace) {
  const TimedShape& shape = cache->shape;
  const uint32_t q_heads = shape.kv_heads * shape.group;
  const uint64_t row = uint64_t{shape.row_elems} * kElementBytes;
  const auto memory =
      std::make_shared<DeviceBuffer>(uint64_t{window} * q_heads * (row + sizeof(float)));
  Must(cudaMemsetAsync(memory->data(), 0, memory->size(), workspace.stream()), "cudaMemsetAsync");
  Finish(workspace.stream());
  ScoreRequest request;
  request.layer.sequence = cache->Rows();
  request.layer.q_heads = q_heads;
  request.spec.scorer = Scorer::kObcJoint;
  request.window = window;
  request.input.source = AttentionSource::kQueryOutput;
  request.input.q = {.base = memory->data(),
                     .dtype = DType::kBF16,
                     .rows = window,
                     .heads = q_heads,
                     .elems = shape.row_elems,
                     .row_stride = q_heads * row,
                     .head_stride = row,
                     .elem_stride = kElementBytes};
  request.input.o = request.input.q;
  request.input.lse = {.base = memory->data() + window * q_heads * row,
                       .dtype = DType::kF32,
                       .rows = window,
                       .heads = q_heads,
                       .elems = 1,
                       .row_stride = q_heads * sizeof(float),
                       .head_stride = sizeof(float),
                       .elem_stride = sizeof(float)};
  std::vector<ScoreRequest> requests(shape.layers, request);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    requests[layer].layer.k = cache->View(2 * layer);
    requests[layer].layer.v = cache->View(2 * layer + 1);
  }
  const bool products = window * shape.group > 32;
  TimedCall timed{"score joint, W=" + std::to_string(window) + ", all layers",
                  cache->RowBytes(shape.layers) * shape.tokens, products ? 0.35 : 0.75,
                  products ? 0.45 : 0.88, [cache, memory, requests, &workspace] {
                    std::vector<ScoreResult> results;
                    return CudaScoreLayers(requests, workspace, nullptr, results);
                  }};
  if (products) {
    timed.flops = 4.0 * q_heads * window * shape.tokens * shape.row_elems * shape.layers;
  }
  return timed;
}

TimedCall Select(uint32_t lists, uint32_t rows, double must, double goal, Workspace& workspace) {
  struct Lists {
    std::vector<std::vector<float>> scores;
    std::vector<int32_t> none;
    SelectRequest request;
  };
  auto made = std::make_shared<Lists>();
  std::mt19937 random(lists);
  std::lognormal_distribution<float> draw(0, 2);
  made->scores.assign(lists, std::vector<float>(rows));
  made->request.rows = rows;
  made->request.budget = rows / 10;
  for (std::vector<float>& list : made->scores) {
    for (float& x : list) x = draw(random);
    made->request.scores.emplace_back(list);
    made->request.protect.emplace_back(made->none);
  }
  return {"select " + std::to_string(lists) + " lists, keep 10 %", 0, must, goal,
          [made, &workspace] {
            std::vector<SelectResult> results;
            return CudaSelectLists({&made->request, 1}, workspace, results);
          }};
}

}  // namespace

uint64_t CacheBytes(const TimedShape& shape) {
  const uint64_t blocks = (shape.tokens + kBlockSlots - 1) / kBlockSlots;
  return 2 * shape.layers * blocks * kBlockSlots * shape.kv_heads * shape.row_elems * kElementBytes;
}

std::vector<TimedCall> CacheCalls(const TimedShape& shape, Workspace& workspace) {
  const auto cache = std::make_shared<Cache>(shape, workspace.stream());
  return {Diverge(cache, workspace),    Compact(cache, shape.layers, workspace),
          Compact(cache, 1, workspace), Rotate(cache, workspace),
          Fuse(cache, workspace),       Score(cache, 64, workspace),
          Score(cache, 1, workspace)};
}

std::vector<TimedCall> SelectCalls(uint32_t rows, uint32_t few, uint32_t many,
                                   Workspace& workspace) {
  return {Select(few, rows, 60e-6, 25e-6, workspace),
          Select(many, rows, 250e-6, 120e-6, workspace)};
}

}  // namespace kvtriage::gpu
