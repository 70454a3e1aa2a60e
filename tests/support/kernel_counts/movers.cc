// Compaction, fuse and rotation: no byte twice, no byte that need not move.
#include <random>
#include <span>
#include <string>

#include "kernels/core/rope_speeds.h"
#include "kernels/cuda/compact.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/rotate.h"
#include "tests/support/kernel_counts/counted_call.h"

namespace kvtriage {
namespace {

constexpr uint32_t kRows = 200, kHeads = 2, kElems = 128;

void AddCallCosts(const std::string& kernel, const CountedCall& one, const CountedCall& many,
                  std::vector<KernelCount>& counts) {
  counts.push_back({kernel, "launches of 6 layers", "those of 1", many.launches, one.launches});
  counts.push_back({kernel, "launches of 1 layer", "1", one.launches, 1});
  counts.push_back({kernel, "allocations in the call", "0", one.allocations + many.allocations, 0});
  counts.push_back(
      {kernel, "extra shared-memory passes", "0", many.counters.shared_extra_passes, 0});
}

// Every head keeps about half of its rows, and a short prefix that stays in place.
std::vector<std::vector<int32_t>> KeptOfHeads(uint64_t* moving) {
  std::mt19937 random(1);
  std::vector<std::vector<int32_t>> kept(kHeads);
  for (std::vector<int32_t>& list : kept) {
    for (uint32_t p = 0; p < kRows; ++p) {
      if (p < 20 || random() % 2 == 0) list.push_back(static_cast<int32_t>(p));
    }
    for (size_t j = 0; j < list.size(); ++j) *moving += list[j] != static_cast<int32_t>(j) ? 1 : 0;
  }
  return kept;
}

CountedCall CountCompact(uint32_t layers, std::span<const std::vector<int32_t>> kept) {
  CountedCache cache(layers, kRows, kHeads, kElems);
  std::vector<MoveRequest> requests;
  for (const KvView& view : cache.views) {
    MoveRequest request{view, cache.sequence, view, cache.sequence, {}};
    for (const std::vector<int32_t>& list : kept) request.kept.emplace_back(list);
    requests.push_back(request);
  }
  return CountCall([&](Workspace& workspace) {
    MoveResult result;
    return CudaMoveRows(requests, workspace, result);
  });
}

void CountCompaction(std::vector<KernelCount>& counts) {
  uint64_t moving = 0;
  const std::vector<std::vector<int32_t>> kept = KeptOfHeads(&moving);
  const CountedCall one = CountCompact(1, kept), many = CountCompact(6, kept);
  const uint64_t optimum = moving * kElems * 2;
  const std::string kernel = "compact in place", formula = "row bytes * rows not in place";
  counts.push_back({kernel, "bytes of rows read", formula, one.counters.async_copy_bytes, optimum});
  counts.push_back({kernel, "bytes written", formula, one.counters.store_bytes[4], optimum});
  counts.push_back({kernel, "narrow stores", "0",
                    one.counters.global_store_bytes() - one.counters.store_bytes[4], 0});
  AddCallCosts(kernel, one, many, counts);
}

CountedCall CountFuse(uint32_t layers, std::span<const int32_t> rows) {
  CountedCache fresh(layers, static_cast<uint32_t>(rows.size()), kHeads, kElems);
  CountedCache cache(layers, kRows, kHeads, kElems);
  std::vector<RowCopy> copies;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    copies.push_back({fresh.views[layer],
                      fresh.sequence,
                      {},
                      cache.views[layer],
                      cache.sequence,
                      rows,
                      static_cast<uint32_t>(rows.size())});
  }
  return CountCall([&](Workspace& workspace) {
    RowCopyResult result;
    return CudaCopyRows(copies, workspace, result);
  });
}

void CountFusing(std::vector<KernelCount>& counts) {
  std::vector<int32_t> rows;
  for (int32_t p = 3; p < static_cast<int32_t>(kRows); p += 7) rows.push_back(p);
  const CountedCall one = CountFuse(1, rows), many = CountFuse(6, rows);
  const uint64_t optimum = rows.size() * kHeads * kElems * 2;
  const std::string kernel = "fuse", formula = "row bytes * heads * rows";
  counts.push_back({kernel, "bytes of rows read", formula, one.counters.async_copy_bytes, optimum});
  counts.push_back({kernel, "bytes written", formula, one.counters.global_store_bytes(), optimum});
  AddCallCosts(kernel, one, many, counts);
}

CountedCall CountRotate(uint32_t layers, const Rope& rope) {
  CountedCache cache(layers, kRows, kHeads, kElems);
  RotateRequest request;
  request.keys = cache.views;
  request.rows = cache.sequence;
  request.count = kRows;
  request.rope = &rope;
  request.from.first = 0;
  request.to.first = 1000;
  return CountCall([&](Workspace& workspace) {
    RotateResult result;
    return CudaRotateKeys({&request, 1}, workspace, result);
  });
}

void CountRotation(std::vector<KernelCount>& counts) {
  constexpr uint32_t kRotated = 64;  // of the row's channels
  const Rope rope{.rotary_dim = kRotated, .speeds = RopeSpeeds({.theta = 1e4}, kRotated)};
  const CountedCall one = CountRotate(1, rope), many = CountRotate(6, rope);
  const uint64_t optimum = uint64_t{kRows} * kHeads * kRotated * 2;
  const std::string kernel = "rotate", formula = "rotated bytes of a row * heads * rows";
  counts.push_back({kernel, "bytes of keys read", formula, one.counters.load_bytes[1], optimum});
  counts.push_back({kernel, "bytes written", formula, one.counters.global_store_bytes(), optimum});
  AddCallCosts(kernel, one, many, counts);
}

}  // namespace

void CountMovers(std::vector<KernelCount>& counts) {
  CountCompaction(counts);
  CountFusing(counts);
  CountRotation(counts);
}

}  // namespace kvtriage
