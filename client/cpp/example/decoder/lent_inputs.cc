#include "client/cpp/example/decoder/lent_inputs.h"

#include <algorithm>
#include <cmath>

#include "client/cpp/example/decoder/lent_kv.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {

InputsWanted WantedBy(std::string_view policy) {
  InputsWanted wanted;
  if (policy == "expected-attention") wanted.queries = client::QueryStage::kBeforeRope;
  const bool all = policy.starts_with("h2o") || policy == "vatp" || policy == "expected-attention";
  if (all) wanted.window = 0;
  wanted.output_projection = policy == "criticalkv";
  return wanted;
}

absl::StatusOr<LentInputs> LentInputs::Create(const Weights& weights, uint32_t capacity,
                                              InputsWanted wanted) {
  const ModelConfig& config = weights.config;
  KVTRIAGE_ASSIGN_OR_RETURN(client::HostMemory queries,
                            LentFloats({config.layers, capacity, config.query_width()}));
  LentInputs inputs(config, capacity, wanted, std::move(queries));
  if (!wanted.output_projection) return inputs;
  KVTRIAGE_ASSIGN_OR_RETURN(client::HostMemory projection,
                            LentFloats({config.layers, config.hidden, config.query_width()}));
  auto* to = reinterpret_cast<float*>(projection.data());
  for (const LayerWeights& layer : weights.layers) {
    to = std::copy(layer.output.values.begin(), layer.output.values.end(), to);
  }
  inputs.output_projection_ = std::move(projection);
  return inputs;
}

std::vector<client::RegionSpec> LentInputs::Lend() const {
  std::vector<client::RegionSpec> regions = {queries_.Lend(client::Access::kRead)};
  if (output_projection_.has_value()) {
    regions.push_back(output_projection_->Lend(client::Access::kRead));
  }
  return regions;
}

uint32_t LentInputs::WindowOf(uint64_t available) const {
  const uint64_t most = wanted_.window == 0 ? available : wanted_.window;
  return static_cast<uint32_t>(std::min(available, most));
}

void LentInputs::Keep(uint32_t layer, uint64_t first, const Transformer::Projected& rows,
                      uint32_t n) {
  const std::vector<float>& queries =
      wanted_.queries == client::QueryStage::kBeforeRope ? rows.queries_before_rope : rows.queries;
  std::copy(queries.end() - int64_t{n} * config_.query_width(), queries.end(),
            reinterpret_cast<float*>(queries_.data()) +
                (uint64_t{layer} * capacity_ + first) * config_.query_width());
}

client::ScoreInputs LentInputs::From(std::span<const client::Region> regions,
                                     uint64_t tokens) const {
  client::QueryWindow window;
  window.stage = wanted_.queries;
  window.q = client::DenseTensor(regions[0], 0, client::DType::kF32, config_.layers, capacity_,
                                 config_.query_heads, config_.head_size);
  window.q.rows = static_cast<uint32_t>(tokens);  // behind them nothing has been written
  client::ScoreInputs inputs;
  inputs.source = window;
  inputs.softmax_scale = 1 / std::sqrt(static_cast<double>(config_.head_size));
  if (output_projection_.has_value()) {
    inputs.output_projection =
        client::DenseTensor(regions[1], 0, client::DType::kF32, config_.layers, config_.hidden,
                            config_.query_heads, config_.head_size);
  }
  return inputs;
}

}  // namespace kvtriage::decoder
