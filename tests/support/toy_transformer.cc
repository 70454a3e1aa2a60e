#include "tests/support/toy_transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/golden_inputs.h"

namespace kvtriage {
namespace {

constexpr uint32_t kSize = ToyTransformer::kHeadSize;

Doubles Weights(uint64_t stream, uint32_t in, uint32_t out) {
  const std::vector<float> grid = GridValues(stream, size_t{in} * out);
  Doubles weights(grid.begin(), grid.end());
  for (double& w : weights) w /= std::sqrt(in);
  return weights;
}

// x [rows, in] times w [in, out].
Doubles Multiply(std::span<const double> x, const Doubles& w, uint32_t in) {
  const size_t rows = x.size() / in, out = w.size() / in;
  Doubles y(rows * out);
  for (size_t r = 0; r < rows; ++r) {
    for (uint32_t i = 0; i < in; ++i) {
      for (size_t o = 0; o < out; ++o) y[r * out + o] += x[r * in + i] * w[i * out + o];
    }
  }
  return y;
}

// Turns every head of one row to the angle of a position.
void TurnRow(std::span<double> row, int64_t position) {
  for (size_t head = 0; head < row.size(); head += kSize) {
    for (uint32_t j = 0; j < kSize / 2; ++j) {
      const double angle = static_cast<double>(position) * std::pow(1e4, -2.0 * j / kSize);
      double& a = row[head + j];
      double& b = row[head + j + kSize / 2];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = turned;
    }
  }
}

// One query head's output over the first `limit` rows of K and V.
void Attend(const double* q, std::span<const double> k, std::span<const double> v, uint32_t head,
            int32_t limit, double* out) {
  constexpr size_t kRow = ToyTransformer::kKvRow;
  Doubles weight(static_cast<size_t>(limit));
  for (size_t p = 0; p < weight.size(); ++p) {
    for (uint32_t c = 0; c < kSize; ++c) weight[p] += q[c] * k[p * kRow + head * kSize + c];
    weight[p] /= std::sqrt(double{kSize});
  }
  const double most = *std::max_element(weight.begin(), weight.end());
  double sum = 0;
  for (double& w : weight) sum += w = std::exp(w - most);
  for (size_t p = 0; p < weight.size(); ++p) {
    for (uint32_t c = 0; c < kSize; ++c) {
      out[c] += weight[p] / sum * v[p * kRow + head * kSize + c];
    }
  }
}

}  // namespace

ToyTransformer::ToyTransformer(uint64_t case_number) {
  for (uint32_t l = 0; l < kLayers; ++l) {
    const uint64_t stream = case_number * 1000 + 10 + 10 * l;
    layers_.push_back(
        {Weights(stream, kChannels, kChannels), Weights(stream + 1, kChannels, kKvRow),
         Weights(stream + 2, kChannels, kKvRow), Weights(stream + 3, kChannels, kChannels),
         Weights(stream + 4, kChannels, kChannels)});
  }
}

Doubles ToyTransformer::Tokens(uint64_t stream, uint32_t rows) {
  const std::vector<float> grid = GridValues(stream, size_t{rows} * kChannels);
  return {grid.begin(), grid.end()};
}

ToyTransformer::Projected ToyTransformer::Project(uint32_t layer, std::span<const double> x,
                                                  std::span<const int32_t> positions) const {
  Doubles normed(x.begin(), x.end());
  for (size_t r = 0; r < positions.size(); ++r) {
    const auto row = std::span(normed).subspan(r * kChannels, kChannels);
    double squares = 0;
    for (const double value : row) squares += value * value;
    for (double& value : row) value /= std::sqrt(squares / kChannels + 1e-6);
  }
  const Layer& w = layers_[layer];
  Projected out{Multiply(normed, w.q, kChannels), Multiply(normed, w.k, kChannels),
                Multiply(normed, w.v, kChannels)};
  for (size_t r = 0; r < positions.size(); ++r) {
    TurnRow(std::span(out.q).subspan(r * kChannels, kChannels), positions[r]);
    TurnRow(std::span(out.k).subspan(r * kKvRow, kKvRow), positions[r]);
  }
  return out;
}

Doubles ToyTransformer::Step(uint32_t layer, std::span<const double> x, std::span<const double> q,
                             std::span<const double> k, std::span<const double> v,
                             std::span<const int32_t> limits) const {
  constexpr uint32_t kGroup = kQueryHeads / kKvHeads;
  Doubles attended(x.size());
  for (size_t r = 0; r < limits.size(); ++r) {
    for (uint32_t h = 0; h < kQueryHeads; ++h) {
      const size_t at = r * kChannels + h * kSize;
      Attend(q.data() + at, k, v, h / kGroup, limits[r], attended.data() + at);
    }
  }
  const Layer& w = layers_[layer];
  Doubles out = Multiply(attended, w.o, kChannels);
  for (size_t i = 0; i < out.size(); ++i) out[i] += x[i];
  const Doubles mixed = Multiply(out, w.m, kChannels);
  for (size_t i = 0; i < out.size(); ++i) out[i] += std::tanh(mixed[i]);
  return out;
}

ToyTransformer::Prefilled ToyTransformer::Prefill(std::span<const double> x) const {
  std::vector<int32_t> positions(x.size() / kChannels), limits(positions.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::iota(limits.begin(), limits.end(), 1);
  Prefilled out;
  out.out.assign(x.begin(), x.end());
  for (uint32_t l = 0; l < kLayers; ++l) {
    Projected now = Project(l, out.out, positions);
    out.out = Step(l, out.out, now.q, now.k, now.v, limits);
    out.k.push_back(std::move(now.k));
    out.v.push_back(std::move(now.v));
  }
  return out;
}

void ToyTransformer::Rotate(std::span<double> k, int64_t distance) {
  for (size_t at = 0; at < k.size(); at += kKvRow) TurnRow(k.subspan(at, kKvRow), distance);
}

}  // namespace kvtriage
