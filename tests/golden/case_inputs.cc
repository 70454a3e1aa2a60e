#include "tests/golden/case_inputs.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/splitmix64.h"
#include "tests/support/golden_inputs.h"

namespace kvtriage {
namespace {

bool Has(const std::vector<std::string>& knobs, const char* name) {
  return std::find(knobs.begin(), knobs.end(), name) != knobs.end();
}

// direction[g * dk + c]: half a grid integer, over 16.
std::vector<float> Direction(const CaseShape& s, uint64_t stream) {
  std::vector<float> direction(s.kv_heads * s.dk);
  for (size_t n = 0; n < direction.size(); ++n)
    direction[n] = static_cast<float>(GridInt(stream, n) / 2) / 16.0f;
  return direction;
}

void AddDirection(const CaseShape& s, const std::vector<float>& direction, bool sink, bool hot,
                  CaseInputs& in) {
  const uint32_t group = s.q_heads / s.kv_heads;
  for (size_t n = 0; n < in.q.size(); ++n) {
    in.q[n] += direction[n / (size_t{s.window} * s.dk) / group * s.dk + n % s.dk];
  }
  for (uint32_t g = 0; g < s.kv_heads; ++g) {
    float* k = in.k.data() + size_t{g} * s.rows * s.dk;
    const float* d = direction.data() + size_t{g} * s.dk;
    for (uint32_t c = 0; sink && c < s.dk; ++c) k[c] = 4 * d[c];
    for (uint32_t c = 0; sink && c < s.dv; ++c) in.v[size_t{g} * s.rows * s.dv + c] /= 16.0f;
    for (uint32_t p = 17; hot && p < s.rows; p += 17) {
      for (uint32_t c = 0; c < s.dk; ++c) k[size_t{p} * s.dk + c] += d[c];
    }
  }
}

// Rows as the codes of a stream mean them; without the bit that NaN and infinities have.
void SetF8Rows(const CaseStorage& storage, uint64_t stream, const CaseShape& s, float scale,
               std::vector<float>& x) {
  const size_t elems = x.size() / s.kv_heads / s.rows;
  for (size_t n = 0; n < x.size(); ++n) {
    const auto code = static_cast<uint8_t>(SplitMix64(stream, n) & 0xBF);
    const auto head = static_cast<uint32_t>(n / elems / s.rows);
    const auto row = static_cast<uint32_t>(n / elems % s.rows);
    x[n] = F8ToFloat(code, *storage.f8) * scale *
           (storage.scales.per_row ? CacheScales::RowFactor(head, row) : 1.0f);
  }
}

// Copies key row `from` over row `to` in every head.
void CopyKey(uint32_t from, uint32_t to, CaseInputs& in) {
  const CaseShape& s = in.shape;
  for (uint32_t g = 0; g < s.kv_heads; ++g) {
    const auto head = in.k.begin() + static_cast<std::ptrdiff_t>(size_t{g} * s.rows * s.dk);
    std::copy_n(head + static_cast<std::ptrdiff_t>(from * s.dk), s.dk,
                head + static_cast<std::ptrdiff_t>(to * s.dk));
  }
}

}  // namespace

CaseStorage StorageOf(const nlohmann::json& file) {
  CaseStorage storage;
  storage.v_in_k = file.value("v_in_k", false);
  if (!file.contains("fp8")) return storage;
  const nlohmann::json& f8 = file.at("fp8");
  storage.f8 = f8.at("format") == "e4m3" ? DType::kF8E4M3 : DType::kF8E5M2;
  storage.scales = {f8.at("k_scale"), f8.at("v_scale"), f8.at("per_row")};
  return storage;
}

CaseShape ShapeOf(const nlohmann::json& shape) {
  return {shape.at("Hq"), shape.at("Hk"),           shape.at("N"), shape.at("W"), shape.at("dk"),
          shape.at("dv"), shape.value("hidden", 0u)};
}

CaseInputs MakeCaseInputs(const CaseShape& s, uint64_t number,
                          const std::vector<std::string>& knobs, const CaseStorage& storage,
                          bool before_rope) {
  CaseInputs in{s, GridValues(number * 1000 + 1, size_t{s.q_heads} * s.window * s.dk),
                GridValues(number * 1000 + 2, size_t{s.kv_heads} * s.rows * s.dk),
                GridValues(number * 1000 + 3, size_t{s.kv_heads} * s.rows * s.dv),
                GridValues(number * 1000 + 4, size_t{s.hidden} * s.q_heads * s.dv)};
  if (before_rope) {
    in.q_before = GridValues(number * 1000 + 7, size_t{s.q_heads} * s.rows * s.dk);
  }
  const bool sink = Has(knobs, "sink"), hot = Has(knobs, "hot");
  if (sink || hot) AddDirection(s, Direction(s, number * 1000 + 5), sink, hot, in);
  for (uint32_t p = 50; Has(knobs, "dup") && p < 60; ++p) CopyKey(p + 100, p, in);
  for (uint32_t p = 1; Has(knobs, "flat") && p < s.rows; ++p) CopyKey(0, p, in);
  for (float& x : in.q) x *= Has(knobs, "peak") ? 8.0f : 1.0f;
  for (float& x : in.v) x *= Has(knobs, "big") ? 32.0f : 1.0f;
  if (storage.f8) {
    SetF8Rows(storage, number * 1000 + 2, s, storage.scales.k, in.k);
    SetF8Rows(storage, number * 1000 + 3, s, storage.scales.v, in.v);
  }
  for (size_t n = 0; storage.v_in_k && n < in.v.size(); ++n) {
    in.v[n] = in.k[n / s.dv * s.dk + n % s.dv];
  }
  return in;
}

CaseLogits LogitsOf(const nlohmann::json& file) {
  CaseLogits logits;
  if (!file.contains("logits")) return logits;
  const nlohmann::json& from = file.at("logits");
  logits.softcap = from.value("softcap", 0.0f);
  // The product reads them as float32.
  for (const float x : from.value("alibi_slopes", std::vector<float>()))
    logits.alibi_slopes.push_back(x);
  for (const float x : from.value("sink_logits", std::vector<float>()))
    logits.sink_logits.push_back(x);
  return logits;
}

CaseAttention Attend(const CaseInputs& in, double scale, const CaseLogits& logits) {
  const CaseShape& s = in.shape;
  const size_t pairs = size_t{s.q_heads} * s.window;
  CaseAttention out{std::vector<double>(pairs * s.rows), std::vector<double>(pairs * s.rows),
                    std::vector<double>(pairs * s.dv), std::vector<double>(pairs)};
  for (size_t pair = 0; pair < pairs; ++pair) {
    const size_t g = pair / s.window / (s.q_heads / s.kv_heads);
    const size_t limit = s.rows - s.window + pair % s.window + 1;
    const float* q = in.q.data() + pair * s.dk;
    double *a = out.a.data() + pair * s.rows, *z = out.z.data() + pair * s.rows;
    const size_t head = pair / s.window;
    const double slope = logits.alibi_slopes.empty() ? 0 : logits.alibi_slopes[head];
    const double sink = logits.sink_logits.empty() ? -HUGE_VAL : logits.sink_logits[head];
    double largest = sink;
    for (size_t p = 0; p < limit; ++p) {
      const float* k = in.k.data() + (g * s.rows + p) * s.dk;
      for (uint32_t c = 0; c < s.dk; ++c) z[p] += double{q[c]} * k[c];
      z[p] *= scale;
      a[p] = z[p];
      if (logits.softcap > 0) {
        const double bend = std::tanh(z[p] / logits.softcap);
        a[p] = logits.softcap * bend;
        z[p] *= 1 - bend * bend;
      }
      a[p] -= slope * static_cast<double>(limit - 1 - p);
      largest = std::max(largest, a[p]);
    }
    double sum = std::exp(sink - largest);
    for (size_t p = 0; p < limit; ++p) sum += a[p] = std::exp(a[p] - largest);
    out.lse[pair] = largest + std::log(sum);
    for (size_t p = 0; p < limit; ++p) {
      a[p] /= sum;
      const float* v = in.v.data() + (g * s.rows + p) * s.dv;
      for (uint32_t c = 0; c < s.dv; ++c) out.o[pair * s.dv + c] += a[p] * v[c];
    }
  }
  return out;
}

}  // namespace kvtriage
