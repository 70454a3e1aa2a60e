#include "tests/integration/blend_worker.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>
#include <utility>

#include "client/cli/dump.h"
#include "gtest/gtest.h"
#include "kernels/core/dtype.h"

namespace kvtriage::client {
namespace {

constexpr uint64_t kPlanes = 6;

template <typename T>
T Need(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status() << "\n";
  std::abort();
}

}  // namespace

BlendWorker::BlendWorker(uint32_t layer) : memory_(Need(HostMemory::Create(kPlanes * kPlane))) {
  const cli::Dump dump = Need(cli::Dump::Open(KVTRIAGE_SOURCE_DIR "/tests/data/blend.safetensors"));
  const auto read = [&](const std::string& name, uint64_t plane, uint32_t rows) {
    const TensorEntry* const entry =
        dump.file().Find("layers." + std::to_string(layer) + "." + name);
    std::vector<std::byte> bytes(uint64_t{kHeads} * rows * kRowBytes);
    if (entry == nullptr || entry->bytes != bytes.size()) std::abort();
    EXPECT_TRUE(dump.file().Read(*entry, bytes).ok());
    for (uint32_t h = 0; h < kHeads; ++h) {
      std::memcpy(At(plane, h, 0), bytes.data() + uint64_t{h} * rows * kRowBytes, rows * kRowBytes);
    }
  };
  read("reused_k", PlaneOf(false, false), kReused);
  read("reused_v", PlaneOf(false, true), kReused);
  read("fresh_k", PlaneOf(true, false), kRows);
  read("fresh_v", PlaneOf(true, true), kRows);
  old_positions_ = Need(dump.OldPositions(kReused));
  for (uint32_t row = kReused; row < kRows; ++row) {
    old_positions_.push_back(static_cast<int32_t>(row));
  }
}

void BlendWorker::Lend(Session& session) {
  CacheSpec cache;
  RopeSpec& rope = cache.ropes.emplace_back();
  rope.pairing = RopePairing::kHalf;
  rope.rotary_dim = kElems;
  rope.speeds = ThetaSpeeds{1e5, {}};
  LayerSpec layer;
  layer.q_heads = 9;
  layer.kv_heads = kHeads;
  layer.rope_index = 1;
  layer.k = ContiguousView(Region::OfThisCall(0), 0, kHeads, kRows, kElems, DType::kF16);
  layer.v = ContiguousView(Region::OfThisCall(0), kPlane, kHeads, kRows, kElems, DType::kF16);
  cache.layers.push_back(layer);
  cache.num_layers = 1;
  absl::StatusOr<Registered> lent = session.Register({{memory_.Lend()}, {cache}});
  ASSERT_TRUE(lent.ok()) << lent.status();
  lent_ = *std::move(lent);
}

Sequence BlendWorker::Whole() const {
  Sequence sequence;
  sequence.sequence_id = 1;
  sequence.logical_len = sequence.physical_len = kRows;
  sequence.table = {0};
  sequence.sharing = Sharing::kAllPrivate;
  sequence.positions = old_positions_;
  return sequence;
}

RerotateRequest BlendWorker::Rerotation() const {
  RerotateRequest request;
  request.cache = cache();
  request.sequence = Whole();
  request.rows = kReused;
  request.new_positions = uint64_t{0};
  request.angles = AngleMode::kExact;
  return request;
}

TensorSpec BlendWorker::Fresh(bool values) const {
  TensorSpec tensor = DenseTensor(lent_.regions[0], PlaneOf(true, values) * kPlane, DType::kF16, 1,
                                  kRows, kHeads, kElems);
  tensor.row_stride = kRowBytes;  // the dump has heads outside
  tensor.head_stride = kRowBytes * kRows;
  return tensor;
}

FuseRequest BlendWorker::FuseOf(const std::vector<int32_t>& rows) {
  FuseRequest request;
  request.cache = cache();
  request.sequence = Whole();
  request.rows = rows;
  for (const bool values : {false, true}) {
    const uint64_t plane = values ? 5 : 4;
    std::byte* to = memory_.data() + plane * kPlane;
    for (const int32_t row : rows) {
      for (uint32_t h = 0; h < kHeads; ++h, to += kRowBytes) {
        std::memcpy(to, At(PlaneOf(true, values), h, static_cast<uint32_t>(row)), kRowBytes);
      }
    }
    (values ? request.values : request.keys) =
        DenseTensor(lent_.regions[0], plane * kPlane, DType::kF16, 1,
                    static_cast<uint32_t>(rows.size()), kHeads, kElems);
  }
  return request;
}

std::vector<std::byte> BlendWorker::Row(bool fresh, bool values, uint32_t head, int32_t row) const {
  const std::byte* const at = At(PlaneOf(fresh, values), head, static_cast<uint32_t>(row));
  return {at, at + kRowBytes};
}

double BlendWorker::KeyDifference() const {
  double off = 0, all = 0;
  for (uint32_t h = 0; h < kHeads; ++h) {
    for (uint32_t row = 0; row < kReused; ++row) {
      for (uint32_t e = 0; e < kElems; ++e) {
        const double was = LoadElement(At(0, h, row) + 2 * e, kvtriage::DType::kF16);
        const double is = LoadElement(At(2, h, row) + 2 * e, kvtriage::DType::kF16);
        off += (was - is) * (was - is);
        all += is * is;
      }
    }
  }
  return std::sqrt(off / all);
}

std::vector<std::byte> BlendWorker::CacheBytes() const {
  return {memory_.data(), memory_.data() + 2 * kPlane};
}

}  // namespace kvtriage::client
