#include "tests/support/plain_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/dtype.h"
#include "kernels/core/splitmix64.h"

namespace kvtriage {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool ReadsV(Scorer scorer) {
  return scorer != Scorer::kAttention && scorer != Scorer::kRecency && scorer != Scorer::kRandom;
}

double Element(const KvView& view, const SequenceRows& sequence, uint32_t head, uint64_t p,
               uint64_t k) {
  return LoadElement(RowAddress(view, sequence, head, p) + k * view.layout.elem_stride,
                     view.layout.dtype) *
         RowScale(view, sequence, head, p);
}

double Element(const TensorView& tensor, uint64_t row, uint64_t head, uint64_t elem) {
  return LoadElement(tensor.At(row, head, elem), tensor.dtype);
}

bool Finite(const TensorView& tensor, uint64_t row, uint64_t head) {
  for (uint32_t k = 0; k < tensor.elems; ++k) {
    if (!std::isfinite(Element(tensor, row, head, k))) return false;
  }
  return true;
}

// One query row, turned to its position.
std::vector<double> Query(const AttentionInput& input, uint32_t row, uint32_t head) {
  std::vector<double> q;
  for (uint32_t k = 0; k < input.q.elems; ++k) q.push_back(Element(input.q, row, head, k));
  if (input.rotation.rope == nullptr) return q;
  const Rope& rope = *input.rotation.rope;
  const uint32_t pairs = rope.rotary_dim / 2;
  for (uint32_t j = 0; j < pairs; ++j) {
    uint32_t plane = 0;
    if (rope.multi_plane()) {
      plane = j < rope.sections[0] ? 0 : j < rope.sections[0] + rope.sections[1] ? 1 : 2;
    }
    const double angle = static_cast<double>(input.rotation.At(row)[plane]) * rope.speeds[j];
    const bool half = rope.pairing == RopePairing::kHalf;
    const uint32_t a = rope.offset + (half ? j : 2 * j);
    const uint32_t b = half ? a + pairs : a + 1;
    const double x = q[a], y = q[b];
    q[a] = rope.attention_factor * (x * std::cos(angle) - y * std::sin(angle));
    q[b] = rope.attention_factor * (y * std::cos(angle) + x * std::sin(angle));
  }
  return q;
}

// |alpha v + beta (v - o)|^2 for one pair.
double PairSquare(const LayerRows& layer, const PlainAttention& x, uint32_t kv_head, size_t row,
                  uint64_t p, const double* o, double alpha, double beta) {
  double sum = 0;
  for (uint32_t k = 0; k < x.dv; ++k) {
    const double v = Element(layer.v, layer.sequence, kv_head, p, k);
    const double e = (alpha + beta) * v - (beta == 0 ? 0 : beta * o[row * x.dv + k]);
    sum += e * e;
  }
  return sum;
}

// Sum over the rows of one query head (or averaged group) of the scorer's term for token p.
double TermSum(const ScoreRequest& request, const PlainAttention& x, uint32_t kv_head, size_t head,
               uint64_t p) {
  double sum = 0;
  for (uint32_t i = 0; i < x.rows; ++i) {
    const size_t row = x.Row(head, i);
    if (x.visible[row * x.tokens + p] == 0) continue;
    const double a = x.a[row * x.tokens + p], z = x.z[row * x.tokens + p];
    const auto square = [&](double alpha, double beta) {
      return PairSquare(request.layer, x, kv_head, row, p, x.o.data(), alpha, beta);
    };
    switch (request.spec.scorer) {
      case Scorer::kObcValue:
        sum += a * a * square(1, 0);
        break;
      case Scorer::kObcKey:
        sum += a * a * square(0, z);
        break;
      case Scorer::kObcJoint:
        sum += a * a * square(1, z);
        break;
      case Scorer::kDrop: {
        const auto* const first = x.visible.data() + row * x.tokens;
        if (std::count(first, first + x.tokens, 1) < 2) break;
        sum += a * a * square(0, 1 / std::max(1 - a, 1e-6));
        break;
      }
      default:
        sum += a;
    }
  }
  if (request.spec.scorer == Scorer::kVatp) {
    double magnitude = 0;
    for (uint32_t k = 0; k < request.layer.v.layout.row_elems; ++k) {
      magnitude += std::abs(Element(request.layer.v, request.layer.sequence, kv_head, p, k));
    }
    sum *= magnitude;
  }
  return sum;
}

double Reduced(Reduce reduce, const std::vector<double>& heads) {
  double sum = 0;
  for (const double x : heads) sum += x;
  switch (reduce) {
    case Reduce::kSum:
      return sum;
    case Reduce::kMax:
      return std::isnan(sum) ? sum : *std::max_element(heads.begin(), heads.end());
    default:
      return sum / static_cast<double>(heads.size());
  }
}

// Averages the heads of each group; a row that is not usable for one head is not for the group.
PlainAttention GroupAverage(const PlainAttention& x, uint32_t groups) {
  PlainAttention mean = x;
  const uint32_t size = x.q_heads / groups;
  mean.q_heads = groups;
  for (auto* values : {&mean.a, &mean.z, &mean.o}) values->assign(values->size() / size, 0.0);
  mean.visible.assign(x.visible.size() / size, 1);
  mean.usable.assign(x.usable.size() / size, 1);
  for (uint32_t h = 0; h < x.q_heads; ++h) {
    for (uint32_t i = 0; i < x.rows; ++i) {
      const size_t from = x.Row(h, i), to = mean.Row(h / size, i);
      for (uint32_t p = 0; p < x.tokens; ++p) {
        mean.a[to * x.tokens + p] += x.a[from * x.tokens + p] / size;
        mean.z[to * x.tokens + p] += x.z[from * x.tokens + p] / size;
        mean.visible[to * x.tokens + p] &= x.visible[from * x.tokens + p];
      }
      for (uint32_t k = 0; k < x.dv && !x.o.empty(); ++k) {
        mean.o[to * x.dv + k] += x.o[from * x.dv + k] / size;
      }
      mean.usable[to] &= x.usable[from];
    }
  }
  return mean;
}

void ScoreRows(const ScoreRequest& request, PlainScores& out) {
  const LayerRows& layer = request.layer;
  const uint32_t kv_heads = layer.k.layout.heads, group = layer.q_heads / kv_heads;
  const uint64_t tokens = layer.sequence.rows;
  const bool reads_values = ReadsV(request.spec.scorer);
  PlainAttention x = PlainAttend(layer, request.input, request.window, reads_values);
  const bool pre = request.spec.reduce == Reduce::kPre;
  if (pre) {
    const PlainAttention mean = GroupAverage(x, kv_heads);
    for (size_t row = 0; row < x.usable.size(); ++row) {
      const size_t head = row / x.rows / group;
      if (mean.usable[mean.Row(head, row % x.rows)] != 0) continue;
      x.usable[row] = 0;
      std::fill_n(x.visible.begin() + static_cast<ptrdiff_t>(row * tokens), tokens, 0);
      std::fill_n(x.a.begin() + static_cast<ptrdiff_t>(row * tokens), tokens, 0.0);
    }
  }
  const PlainAttention terms = pre ? GroupAverage(x, kv_heads) : x;
  const std::vector<uint8_t> good =
      PlainGoodRows(layer, request.input.source != AttentionSource::kReady, reads_values);
  out.lists = kv_heads;
  out.usable_rows.assign(kv_heads, 0);
  for (uint32_t g = 0; g < kv_heads; ++g) {
    for (uint64_t p = 0; p < tokens; ++p) {
      double mass = 0;
      for (uint32_t h = g * group; h < (g + 1) * group; ++h) {
        for (uint32_t i = 0; i < x.rows; ++i) mass += x.a[x.Row(h, i) * tokens + p];
      }
      std::vector<double> heads;
      for (uint32_t h = 0; h < (pre ? 1 : group); ++h) {
        heads.push_back(TermSum(request, terms, g, pre ? g : g * group + h, p));
      }
      const bool bad = good[g * tokens + p] == 0;
      out.scores.push_back(bad ? kNaN : Reduced(request.spec.reduce, heads));
      out.mass.push_back(bad ? 0 : mass);
    }
    for (uint32_t h = g * group; h < (g + 1) * group; ++h) {
      for (uint32_t i = 0; i < x.rows; ++i) {
        (x.usable[x.Row(h, i)] != 0 ? out.usable_rows[g] : out.skipped_rows) += 1;
      }
    }
    if (tokens > 0 && out.usable_rows[g] == 0 && !out.head_without_rows) out.head_without_rows = g;
  }
}

void ScoreSums(const ScoreRequest& request, PlainScores& out) {
  const LayerRows& layer = request.layer;
  const HeadAxis axis = request.input.sums_axis;
  out.lists = axis == HeadAxis::kSummed ? 1 : layer.k.layout.heads;
  out.usable_rows.assign(out.lists, 0);
  const uint32_t group = axis == HeadAxis::kQuery ? layer.q_heads / out.lists : 1;
  for (uint32_t g = 0; g < out.lists; ++g) {
    for (uint64_t p = 0; p < layer.sequence.rows; ++p) {
      std::vector<double> heads;
      const bool vatp = request.spec.scorer == Scorer::kVatp;
      double mass = 0, magnitude = vatp ? 0 : 1;
      for (uint32_t h = 0; h < group; ++h) {
        heads.push_back(Element(request.input.sums, 0, g * group + h, p));
        mass += heads.back();
      }
      for (uint32_t k = 0; vatp && k < layer.v.layout.row_elems; ++k) {
        magnitude += std::abs(Element(layer.v, layer.sequence, g, p, k));
      }
      if (!std::isfinite(magnitude)) magnitude = kNaN;
      out.scores.push_back(Reduced(request.spec.reduce, heads) * magnitude);
      out.mass.push_back(std::isnan(mass) || std::isnan(magnitude) ? 0 : mass);
    }
  }
}

void PoolRows(const ScoreRequest& request, std::vector<double>& scores) {
  const int64_t tokens = request.layer.sequence.rows;
  const int64_t end = std::min<int64_t>(request.pool_end, tokens),
                half = request.spec.pool_kernel / 2;
  const bool average = request.spec.pool == Pool::kAvg;
  if (request.spec.pool == Pool::kNone) return;
  const std::vector<double> raw = scores;
  for (size_t list = 0; list * tokens < raw.size(); ++list) {
    const double* const row = raw.data() + list * tokens;
    for (int64_t p = 0; p < end; ++p) {
      if (std::isnan(row[p])) continue;
      double pooled = average ? 0 : -kInf;
      for (int64_t j = std::max<int64_t>(0, p - half); j <= std::min(end - 1, p + half); ++j) {
        if (std::isnan(row[j])) continue;
        pooled = average ? pooled + row[j] : std::max(pooled, row[j]);
      }
      scores[list * tokens + p] = average ? pooled / request.spec.pool_kernel : pooled;
    }
  }
}

}  // namespace

std::vector<uint8_t> PlainGoodRows(const LayerRows& layer, bool reads_keys, bool reads_values) {
  std::vector<uint8_t> good;
  for (uint32_t g = 0; g < layer.k.layout.heads; ++g) {
    for (uint64_t p = 0; p < layer.sequence.rows; ++p) {
      bool finite = true;
      for (uint32_t k = 0; reads_keys && k < layer.k.layout.row_elems; ++k) {
        finite = finite && std::isfinite(Element(layer.k, layer.sequence, g, p, k));
      }
      for (uint32_t k = 0; reads_values && k < layer.v.layout.row_elems; ++k) {
        finite = finite && std::isfinite(Element(layer.v, layer.sequence, g, p, k));
      }
      good.push_back(finite ? 1 : 0);
    }
  }
  return good;
}

PlainAttention PlainAttend(const LayerRows& layer, const AttentionInput& input, uint32_t window,
                           bool reads_values) {
  const bool ready = input.source == AttentionSource::kReady;
  const bool given = input.source == AttentionSource::kQueryOutput;
  const uint32_t supplied = ready ? input.a.rows : input.q.rows,
                 group = layer.q_heads / layer.k.layout.heads;
  PlainAttention x;
  x.q_heads = layer.q_heads;
  x.tokens = layer.sequence.rows;
  x.rows = std::min(window, supplied);
  if (input.row_limits.empty()) x.rows = std::min(x.rows, x.tokens);
  const bool has_o = (given || ready) && input.o;
  x.dv = has_o ? input.o.elems : (reads_values ? layer.v.layout.row_elems : 0);
  const size_t count = size_t{x.q_heads} * x.rows;
  x.a.assign(count * x.tokens, 0);
  x.z = x.a;
  x.visible.assign(count * x.tokens, 0);
  x.o.assign(count * x.dv, 0);
  x.lse.assign(count, -kInf);
  x.usable.assign(count, 0);
  const std::vector<uint8_t> good = PlainGoodRows(layer, !ready, reads_values);
  for (uint32_t h = 0; h < x.q_heads; ++h) {
    const uint32_t g = h / group;
    for (uint32_t i = 0; i < x.rows; ++i) {
      const size_t row = x.Row(h, i);
      const uint32_t t = supplied - x.rows + i;
      const int64_t limit = input.row_limits.empty()
                                ? int64_t{x.tokens} - x.rows + i + 1
                                : std::min<int64_t>(input.row_limits[t], x.tokens);
      const int64_t first = layer.sliding_window == 0 ? 0 : limit - layer.sliding_window;
      std::vector<uint32_t> seen;
      for (uint32_t p = 0; p < x.tokens && p < limit; ++p) {
        if (p < first) continue;
        if (good[size_t{g} * x.tokens + p] != 0) seen.push_back(p);
      }
      bool usable =
          !seen.empty() && (ready || Finite(input.q, t, h)) && (!has_o || Finite(input.o, t, h));
      if (given) {
        const double lse = Element(input.lse, t, h, 0);
        x.lse[row] = input.lse_base == LseBase::k2 ? lse * std::log(2.0) : lse;
        usable = usable && std::isfinite(lse);
      }
      const bool alibi = !ready && input.alibi_slopes, sink = !ready && !given && input.sink_logits;
      const double slope = alibi ? Element(input.alibi_slopes, 0, h, 0) : 0;
      const double sink_logit = sink ? Element(input.sink_logits, 0, h, 0) : -kInf;
      usable = usable && std::isfinite(slope) && sink_logit < kInf;
      if (!usable) continue;
      x.usable[row] = 1;
      const std::vector<double> q = ready ? std::vector<double>() : Query(input, t, h);
      std::vector<double> logits(x.tokens);
      double top = sink_logit;
      for (const uint32_t p : seen) {
        double& z = x.z[row * x.tokens + p];
        x.visible[row * x.tokens + p] = 1;
        if (ready) {
          z = input.z ? Element(input.z, t, h, p) : 0;
          continue;
        }
        for (uint32_t k = 0; k < layer.k.layout.row_elems; ++k) {
          z += q[k] * Element(layer.k, layer.sequence, g, p, k);
        }
        z *= input.scale;
        logits[p] = z;
        if (input.softcap > 0) {
          const double bend = std::tanh(z / input.softcap);
          logits[p] = input.softcap * bend;
          z *= 1 - bend * bend;
        }
        logits[p] += slope * (static_cast<double>(p) - static_cast<double>(limit - 1));
        top = std::max(top, logits[p]);
      }
      double sum = std::exp(sink_logit - top);
      for (const uint32_t p : seen) sum += std::exp(logits[p] - top);
      if (!given && !ready) x.lse[row] = top + std::log(sum);
      for (const uint32_t p : seen) {
        double& a = x.a[row * x.tokens + p];
        a = ready ? Element(input.a, t, h, p) : std::exp(logits[p] - x.lse[row]);
        for (uint32_t k = 0; k < x.dv && !has_o; ++k) {
          x.o[row * x.dv + k] += a * Element(layer.v, layer.sequence, g, p, k);
        }
      }
      for (uint32_t k = 0; k < x.dv && has_o; ++k) x.o[row * x.dv + k] = Element(input.o, t, h, k);
    }
  }
  return x;
}

PlainScores PlainScore(const ScoreRequest& request) {
  PlainScores out;
  const uint32_t heads = request.layer.k.layout.heads;
  const uint64_t tokens = request.layer.sequence.rows;
  const Scorer scorer = request.spec.scorer;
  if (scorer == Scorer::kRecency || scorer == Scorer::kRandom) {
    out.lists = heads;
    out.usable_rows.assign(heads, 0);
    for (uint64_t g = 0; g < heads; ++g) {
      for (uint64_t p = 0; p < tokens; ++p) {
        const uint64_t n = ((request.layer_index * uint64_t{heads} + g) << 32) + p;
        const uint64_t x = SplitMix64(request.spec.random_key, n);
        out.scores.push_back(scorer == Scorer::kRecency ? static_cast<double>(p)
                                                        : static_cast<double>(x >> 40) / (1 << 24));
      }
    }
  } else if (request.input.source == AttentionSource::kColumnSums) {
    ScoreSums(request, out);
  } else {
    ScoreRows(request, out);
  }
  for (const double score : out.scores) out.nonfinite_tokens += std::isnan(score) ? 1 : 0;
  PoolRows(request, out.scores);
  return out;
}

}  // namespace kvtriage
