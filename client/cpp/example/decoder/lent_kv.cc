#include "client/cpp/example/decoder/lent_kv.h"

#include <algorithm>
#include <optional>

#include "kernels/core/checked_math.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {

absl::StatusOr<client::HostMemory> LentFloats(std::initializer_list<uint64_t> extents) {
  std::optional<uint64_t> bytes = sizeof(float);
  for (const uint64_t extent : extents) bytes = bytes ? CheckedMul(*bytes, extent) : std::nullopt;
  if (!bytes) return absl::ResourceExhaustedError("capacity: more bytes than can be counted");
  return client::HostMemory::Create(*bytes);
}

absl::StatusOr<LentKv> LentKv::Create(const ModelConfig& config, uint32_t capacity) {
  KVTRIAGE_ASSIGN_OR_RETURN(client::HostMemory memory,
                            LentFloats({config.layers, 2, config.kv_width(), capacity}));
  return LentKv(config, capacity, std::move(memory));
}

LentKv::LentKv(const ModelConfig& config, uint32_t capacity, client::HostMemory memory)
    : config_(config),
      capacity_(capacity),
      memory_(std::move(memory)),
      rows_(uint64_t{config.layers} * config.kv_heads) {}

client::CacheSpec LentKv::Describe(client::Region region) const {
  client::CacheSpec cache;
  cache.num_layers = config_.layers;
  client::RopeSpec& rope = cache.ropes.emplace_back();
  rope.pairing = client::RopePairing::kHalf;
  rope.rotary_dim = config_.head_size;
  rope.speeds = client::ThetaSpeeds{config_.rope_theta, {}};
  for (uint32_t l = 0; l < config_.layers; ++l) {
    client::LayerSpec& layer = cache.layers.emplace_back();
    layer.layer_index = l;
    layer.q_heads = config_.query_heads;
    layer.kv_heads = config_.kv_heads;
    layer.rope_index = 1;
    const uint64_t bytes = plane() * sizeof(float);
    const auto view = [&](uint64_t offset) {
      return client::ContiguousView(region, offset, config_.kv_heads, capacity_, config_.head_size,
                                    client::DType::kF32);
    };
    layer.k = view(2 * l * bytes);
    layer.v = view((2 * l + 1) * bytes);
  }
  return cache;
}

uint32_t LentKv::rows(uint32_t layer, uint32_t head) const {
  return rows_[layer * config_.kv_heads + head];
}

uint32_t LentKv::longest() const { return *std::max_element(rows_.begin(), rows_.end()); }

bool LentKv::even() const {
  return std::all_of(rows_.begin(), rows_.end(), [&](uint32_t rows) { return rows == rows_[0]; });
}

float* LentKv::Plane(uint32_t layer, bool values) const {
  return reinterpret_cast<float*>(memory_.data()) +
         (2 * uint64_t{layer} + (values ? 1 : 0)) * plane();
}

float* LentKv::Key(uint32_t layer, uint32_t head, uint32_t slot) const {
  return Plane(layer, false) + (uint64_t{head} * capacity_ + slot) * config_.head_size;
}

float* LentKv::Value(uint32_t layer, uint32_t head, uint32_t slot) const {
  return Plane(layer, true) + (uint64_t{head} * capacity_ + slot) * config_.head_size;
}

CachedRows LentKv::Rows(uint32_t layer) const {
  return {Plane(layer, false), Plane(layer, true), uint64_t{capacity_} * config_.head_size,
          config_.kv_heads, config_.head_size};
}

void LentKv::Write(uint32_t layer, std::span<const float> keys, std::span<const float> values) {
  const uint32_t size = config_.head_size;
  const uint64_t n = keys.size() / config_.kv_width();
  for (uint64_t row = 0; row < n; ++row) {
    for (uint32_t head = 0; head < config_.kv_heads; ++head) {
      const auto slot = static_cast<uint32_t>(rows(layer, head) + row);
      const uint64_t from = (row * config_.kv_heads + head) * size;
      std::copy_n(keys.begin() + static_cast<int64_t>(from), size, Key(layer, head, slot));
      std::copy_n(values.begin() + static_cast<int64_t>(from), size, Value(layer, head, slot));
    }
  }
}

std::vector<int32_t> LentKv::Limits(uint32_t layer, uint32_t n) const {
  std::vector<int32_t> limits;
  for (uint32_t row = 0; row < n; ++row) {
    for (uint32_t head = 0; head < config_.kv_heads; ++head) {
      limits.push_back(static_cast<int32_t>(rows(layer, head) + row + 1));
    }
  }
  return limits;
}

void LentKv::Grow(uint32_t n) {
  for (uint32_t& rows : rows_) rows += n;
}

void LentKv::Shrink(uint32_t layer, uint32_t head, uint32_t rows) {
  rows_[layer * config_.kv_heads + head] = rows;
}

void LentKv::Clear() { std::fill(rows_.begin(), rows_.end(), 0); }

}  // namespace kvtriage::decoder
