#include "tests/support/plain_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/dtype.h"

namespace kvtriage {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Row = std::vector<double>;

Row ReadRow(const KvView& view, const SequenceRows& sequence, uint32_t head, uint64_t p) {
  Row row(view.layout.row_elems);
  const double scale = IsF8(view.layout.dtype) ? RowScale(view, sequence, head, p) : 1.0;
  for (size_t k = 0; k < row.size(); ++k) {
    row[k] = LoadElement(RowAddress(view, sequence, head, p) + k * view.layout.elem_stride,
                         view.layout.dtype) *
             scale;
  }
  return row;
}

bool Finite(const Row& row) {
  return std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); });
}

double Dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

double Norm(const Row& row) { return std::sqrt(Dot(row, row)); }

std::vector<Row> RowsOf(const KvView& view, const LayerRows& layer, uint32_t head) {
  std::vector<Row> rows;
  for (uint64_t p = 0; p < layer.sequence.rows; ++p) {
    rows.push_back(ReadRow(view, layer.sequence, head, p));
  }
  return rows;
}

// Softmax over the good rows of the partition at `begin` of their deviations, measured with the
// next.
Row Spread(const std::vector<Row>& rows, const std::vector<bool>& good, size_t begin, size_t lag) {
  const size_t channels = rows[0].size();
  Row deviations(lag), out(lag);
  double sum = 0;
  for (size_t i = 0; i < lag; ++i) {
    Row y(channels);
    for (size_t c = 0; c < channels; ++c) {
      double low = HUGE_VAL, high = -HUGE_VAL;
      for (size_t j = begin + lag; j < begin + 2 * lag; ++j) {
        if (!good[j]) continue;
        low = std::min(low, rows[j][c]);
        high = std::max(high, rows[j][c]);
      }
      y[c] = high > low ? (rows[begin + i][c] - low) / (high - low) : 0;
    }
    double mean = 0, squares = 0;
    for (const double x : y) mean += x / static_cast<double>(channels);
    for (const double x : y) squares += (x - mean) * (x - mean);
    if (channels > 1) deviations[i] = std::sqrt(squares / static_cast<double>(channels - 1));
    if (good[begin + i]) sum += out[i] = std::exp(deviations[i]);
  }
  for (double& x : out) x /= sum;
  return out;
}

}  // namespace

std::vector<double> PlainKeyNorms(const LayerRows& layer) {
  std::vector<double> out;
  for (uint32_t g = 0; g < layer.k.layout.heads; ++g) {
    for (const Row& k : RowsOf(layer.k, layer, g)) out.push_back(Finite(k) ? -Norm(k) : kNaN);
  }
  return out;
}

std::vector<double> PlainKeyDistances(const LayerRows& layer) {
  std::vector<double> out;
  for (uint32_t g = 0; g < layer.k.layout.heads; ++g) {
    const std::vector<Row> keys = RowsOf(layer.k, layer, g);
    Row mean(layer.k.layout.row_elems);
    const auto good = static_cast<double>(std::count_if(keys.begin(), keys.end(), Finite));
    for (const Row& k : keys) {
      for (size_t c = 0; Finite(k) && c < mean.size(); ++c) {
        mean[c] += k[c] / std::max(Norm(k), 1e-12) / good;
      }
    }
    for (const Row& k : keys) {
      out.push_back(Finite(k) ? -Dot(k, mean) / std::max(Norm(k) * Norm(mean), 1e-8) : kNaN);
    }
  }
  return out;
}

std::vector<double> PlainLagRanks(const LayerRows& layer, uint32_t sinks, uint32_t lag) {
  std::vector<double> out;
  const size_t tokens = layer.sequence.rows;
  for (uint32_t g = 0; g < layer.k.layout.heads; ++g) {
    const std::vector<Row> k = RowsOf(layer.k, layer, g), v = RowsOf(layer.v, layer, g);
    std::vector<bool> good;
    for (size_t p = 0; p < tokens; ++p) good.push_back(Finite(k[p]) && Finite(v[p]));
    const bool is_short = tokens < size_t{sinks} + 2 * size_t{lag};
    Row scores(tokens, 1.0);
    for (size_t p = 0; p < tokens && is_short; ++p) scores[p] = static_cast<double>(p);
    for (size_t begin = sinks; !is_short && begin + 2 * lag <= tokens; begin += lag) {
      const Row from_k = Spread(k, good, begin, lag), from_v = Spread(v, good, begin, lag);
      for (size_t i = 0; i < lag; ++i) {
        double worse = 0;
        for (size_t j = 0; j < lag; ++j) {
          const double mine = from_k[i] + from_v[i], other = from_k[j] + from_v[j];
          if (good[begin + j] && (other < mine || (other == mine && j > i))) worse += 1;
        }
        scores[begin + i] = worse / lag;
      }
    }
    for (size_t p = 0; p < tokens; ++p) out.push_back(good[p] ? scores[p] : kNaN);
  }
  return out;
}

std::vector<double> PlainProjectedNorms(const LayerRows& layer, const TensorView& projection) {
  std::vector<double> out;
  const uint32_t group = layer.q_heads / layer.k.layout.heads;
  for (uint32_t g = 0; g < layer.k.layout.heads; ++g) {
    for (const Row& v : RowsOf(layer.v, layer, g)) {
      double sum = 0;
      for (uint32_t h = g * group; h < (g + 1) * group; ++h) {
        for (uint32_t i = 0; i < projection.rows; ++i) {
          double y = 0;
          for (size_t c = 0; c < v.size(); ++c) {
            y += LoadElement(projection.At(i, h, c), projection.dtype) * v[c];
          }
          sum += std::abs(y);
        }
      }
      out.push_back(Finite(v) ? sum / group : kNaN);
    }
  }
  return out;
}

}  // namespace kvtriage
