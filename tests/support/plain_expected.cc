#include "tests/support/plain_expected.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/dtype.h"

namespace kvtriage {
namespace {

using Row = std::vector<double>;

Row ReadRow(const KvView& view, const SequenceRows& sequence, uint32_t head, uint64_t p) {
  Row row(view.layout.row_elems);
  for (size_t k = 0; k < row.size(); ++k) {
    row[k] = LoadElement(RowAddress(view, sequence, head, p) + k * view.layout.elem_stride,
                         view.layout.dtype);
  }
  return row;
}

bool Finite(const Row& row) {
  return std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); });
}

// The mean rotation as a full matrix [size][size].
std::vector<Row> MeanRotation(const ScoreRequest& request, size_t size) {
  std::vector<Row> r(size, Row(size));
  for (size_t c = 0; c < size; ++c) r[c][c] = 1;
  if (request.rope == nullptr) return r;
  const Rope& rope = *request.rope;
  for (size_t j = 0; j < rope.speeds.size(); ++j) {
    const bool half = rope.pairing == RopePairing::kHalf;
    const size_t a = rope.offset + (half ? j : 2 * j), b = a + (half ? rope.rotary_dim / 2 : 1);
    double cosine = 0, sine = 0;
    for (uint32_t t = 0; t < request.spec.future; ++t) {
      const double angle = static_cast<double>(request.next_position + t) * rope.speeds[j];
      cosine += rope.attention_factor * std::cos(angle) / request.spec.future;
      sine += rope.attention_factor * std::sin(angle) / request.spec.future;
    }
    r[a][a] = r[b][b] = cosine;
    r[a][b] = -sine;
    r[b][a] = sine;
  }
  return r;
}

// Logit of one key for one head.
double Logit(const ScoreRequest& request, const std::vector<Row>& r, const double* mean,
             const double* covariance, const Row& k) {
  const size_t size = k.size();
  // k^T R once: then both terms are plain.
  Row turned(size);
  for (size_t c = 0; c < size; ++c) {
    for (size_t i = 0; i < size; ++i) turned[c] += k[i] * r[i][c];
  }
  const double scale = request.input.scale;
  double linear = 0, quadratic = 0;
  for (size_t c = 0; c < size; ++c) {
    linear += mean[c] * turned[c];
    for (size_t i = 0; i < size; ++i) quadratic += turned[c] * covariance[c * size + i] * turned[i];
  }
  return scale * linear + scale * scale / 2 * quadratic;
}

}  // namespace

PlainMoments PlainQueryMoments(const TensorView& queries, uint32_t first) {
  PlainMoments out;
  for (uint32_t h = 0; h < queries.heads; ++h) {
    std::vector<Row> rows;
    for (uint32_t i = first; i < queries.rows; ++i) {
      Row row;
      for (uint32_t c = 0; c < queries.elems; ++c) {
        row.push_back(LoadElement(queries.At(i, h, c), queries.dtype));
      }
      if (Finite(row)) rows.push_back(row);
    }
    Row mean(queries.elems), covariance(size_t{queries.elems} * queries.elems);
    for (const Row& row : rows) {
      for (size_t c = 0; c < mean.size(); ++c) mean[c] += row[c] / static_cast<double>(rows.size());
    }
    for (const Row& row : rows) {
      for (size_t i = 0; i < covariance.size(); ++i) {
        const size_t a = i / mean.size(), b = i % mean.size();
        covariance[i] += (row[a] - mean[a]) * (row[b] - mean[b]) / static_cast<double>(rows.size());
      }
    }
    out.mean.insert(out.mean.end(), mean.begin(), mean.end());
    out.covariance.insert(out.covariance.end(), covariance.begin(), covariance.end());
  }
  return out;
}

std::vector<double> PlainExpectedScores(const ScoreRequest& request, const PlainMoments& moments) {
  const LayerRows& layer = request.layer;
  const uint32_t heads = layer.k.layout.heads, group = layer.q_heads / heads;
  const uint64_t tokens = layer.sequence.rows;
  const size_t size = layer.k.layout.row_elems;
  const std::vector<Row> rotation = MeanRotation(request, size);
  std::vector<double> out;
  for (uint32_t g = 0; g < heads; ++g) {
    Row attention(tokens), norms(tokens);
    for (uint64_t p = 0; p < tokens; ++p) {
      const Row v = ReadRow(layer.v, layer.sequence, g, p);
      for (const double x : v) norms[p] += x * x;
      norms[p] = Finite(v) && Finite(ReadRow(layer.k, layer.sequence, g, p))
                     ? std::sqrt(norms[p])
                     : std::numeric_limits<double>::quiet_NaN();
    }
    for (uint32_t h = g * group; h < (g + 1) * group; ++h) {
      Row weights(tokens);
      double sum = 0;
      for (uint64_t p = request.sinks; p < tokens; ++p) {
        if (std::isnan(norms[p])) continue;
        weights[p] = std::exp(Logit(request, rotation, &moments.mean[h * size],
                                    &moments.covariance[h * size * size],
                                    ReadRow(layer.k, layer.sequence, g, p)));
        sum += weights[p];
      }
      for (uint64_t p = request.sinks; p < tokens; ++p) attention[p] += weights[p] / sum / group;
    }
    for (uint64_t p = 0; p < tokens; ++p) {
      const bool counts = p >= request.sinks || std::isnan(norms[p]);
      out.push_back(counts ? (attention[p] + request.spec.epsilon) * norms[p] : 0.0);
    }
  }
  return out;
}

}  // namespace kvtriage
