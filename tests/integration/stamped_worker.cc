#include "tests/integration/stamped_worker.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "gtest/gtest.h"

namespace kvtriage::client {
namespace {

constexpr uint32_t kPlanes = 2 * StampedWorker::kLayers;
constexpr uint64_t kBlockBytes = uint64_t{StampedWorker::kBlockSlots} * StampedWorker::kHeads *
                                 StampedWorker::kElems * sizeof(float);

HostMemory MakeMemory(uint64_t bytes) {
  absl::StatusOr<HostMemory> memory = HostMemory::Create(bytes);
  if (memory.ok()) return *std::move(memory);
  std::cerr << memory.status() << "\n";
  std::abort();
}

}  // namespace

StampedWorker::StampedWorker(uint32_t sequences, uint32_t rows)
    : sequences_(sequences),
      rows_(rows),
      blocks_((rows + kBlockSlots - 1) / kBlockSlots + 1),
      memory_(MakeMemory(kPlanes * kBlockBytes * blocks_ * sequences)) {
  for (uint32_t i = 0; i < sequences_; ++i) {
    Sequence sequence = Of(i);
    sequence.logical_len = sequence.physical_len = 0;
    for (uint32_t row = 0; row < rows_; ++row) Append(sequence, i);
  }
}

float StampedWorker::Stamp(uint32_t plane, uint32_t sequence, uint32_t head, uint64_t token) {
  return static_cast<float>(((plane * 8 + sequence) * kHeads + head) * 10000 +
                            token);  // exact in f32
}

float* StampedWorker::Row(uint32_t plane, int32_t block, uint32_t slot, uint32_t head) const {
  const uint64_t at =
      (uint64_t{plane} * blocks_ * sequences_ + static_cast<uint32_t>(block)) * kBlockBytes;
  return reinterpret_cast<float*>(memory_.data() + at) + (slot * kHeads + head) * kElems;
}

Sequence StampedWorker::Of(uint32_t i) const {
  Sequence sequence;
  sequence.sequence_id = i + 1;
  sequence.logical_len = sequence.physical_len = rows_;
  sequence.sharing = Sharing::kAllPrivate;
  for (uint32_t j = 0; j < blocks_; ++j)
    sequence.table.push_back(static_cast<int32_t>(j * sequences_ + i));
  return sequence;
}

void StampedWorker::Append(Sequence& sequence, uint32_t i) {
  const auto row = static_cast<uint32_t>(sequence.physical_len);
  for (uint32_t plane = 0; plane < kPlanes; ++plane) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      float* const to = Row(plane, sequence.table.at(row / kBlockSlots), row % kBlockSlots, head);
      std::fill_n(to, kElems, Stamp(plane, i, head, sequence.logical_len));
    }
  }
  ++sequence.physical_len;
  ++sequence.logical_len;
}

CacheSpec StampedWorker::Describe() const {
  CacheSpec cache;
  cache.num_layers = kLayers;
  const auto view = [&](uint32_t plane) {
    ViewSpec view;
    view.region = Region::OfThisCall(0);
    view.offset = plane * kBlockBytes * blocks_ * sequences_;
    view.block_stride = kBlockBytes;
    view.slot_stride = kHeads * kElems * sizeof(float);
    view.head_stride = kElems * sizeof(float);
    view.elem_stride = sizeof(float);
    view.num_blocks = blocks_ * sequences_;
    view.block_slots = kBlockSlots;
    view.heads = kHeads;
    view.row_elems = kElems;
    view.dtype = DType::kF32;
    return view;
  };
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    LayerSpec spec;
    spec.layer_index = layer;
    spec.q_heads = spec.kv_heads = kHeads;
    spec.k = view(2 * layer);
    spec.v = view(2 * layer + 1);
    cache.layers.push_back(std::move(spec));
  }
  return cache;
}

void StampedWorker::Lend(Session& session) {
  absl::StatusOr<Registered> lent = session.Register({{memory_.Lend()}, {Describe()}});
  ASSERT_TRUE(lent.ok()) << lent.status();
  lent_ = *std::move(lent);
}

CompressRequest StampedWorker::Request(std::vector<Sequence> sequences, uint32_t kept) const {
  CompressRequest request;
  request.cache = cache();
  request.sequences = std::move(sequences);
  request.policy = NamedPolicyTokens("streaming", kept);
  request.act = InPlace{};
  return request;
}

std::vector<int32_t> StampedWorker::StreamingRows(uint32_t rows, uint32_t kept) {
  std::vector<int32_t> out;
  for (uint32_t row = 0; row < rows; ++row) {
    if (row < 4 || row >= rows - (kept - 4)) out.push_back(static_cast<int32_t>(row));
  }
  return out;
}

std::vector<int32_t> StampedWorker::Tokens(const Sequence& sequence, uint32_t i, uint32_t rows,
                                           std::string* why) const {
  std::vector<int32_t> tokens;
  for (uint32_t row = 0; row < rows; ++row) {
    const int32_t block = sequence.table.at(row / kBlockSlots);
    const float first = *Row(0, block, row % kBlockSlots, 0);
    const auto token = static_cast<int32_t>(first - Stamp(0, i, 0, 0));
    for (uint32_t plane = 0; plane < kPlanes; ++plane) {
      for (uint32_t head = 0; head < kHeads; ++head) {
        const float* const at = Row(plane, block, row % kBlockSlots, head);
        const float want = Stamp(plane, i, head, static_cast<uint64_t>(token));
        if (std::any_of(at, at + kElems, [&](float value) { return value != want; })) {
          *why = "row " + std::to_string(row) + " of plane " + std::to_string(plane) + ", head " +
                 std::to_string(head) + " holds something else";
        }
      }
    }
    tokens.push_back(token);
  }
  return tokens;
}

void StampedWorker::ExpectTokens(const Sequence& sequence, uint32_t i,
                                 const std::vector<int32_t>& tokens) const {
  std::string why;
  EXPECT_EQ(Tokens(sequence, i, static_cast<uint32_t>(tokens.size()), &why), tokens)
      << "sequence " << i;
  EXPECT_EQ(why, "") << "sequence " << i;
}

void StampedWorker::ExpectUntouched(uint32_t i) const {
  std::vector<int32_t> all;
  for (uint32_t row = 0; row < rows_; ++row) all.push_back(static_cast<int32_t>(row));
  ExpectTokens(Of(i), i, all);
}

}  // namespace kvtriage::client
