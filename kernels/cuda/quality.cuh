// Retained mass and output errors of query rows (kvtriage/kernels/quality.h). A block takes some
// rows of one KV head's group and walks over all tokens that any of them sees, tile by tile: once
// for the log-sum-exps where they are not given, then for the sums of weights and of weighted
// values, kept tokens and others apart. With the log-sum-exp known those sums just add up: values
// are added in float32 within a chunk of tokens, the chunks' sums in float64 and in index order.
// Chunks begin at multiples of their length, so a row's numbers depend on nothing but the row.
#ifndef KVTRIAGE_KERNELS_CUDA_QUALITY_CUH_
#define KVTRIAGE_KERNELS_CUDA_QUALITY_CUH_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/logit_rule.cuh"
#include "kernels/cuda/quality_launch.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/token_tile.cuh"

namespace kvtriage {

// log2(2^a + 2^b).
SIMT_DEVICE double AddLogs2(double a, double b) {
  const double top = a > b ? a : b;
  if (!(top - top == 0)) return top;
  return top + log2(exp2(a - top) + exp2(b - top));
}

// What the threads of a block share.
struct QualityShared {
  simt::Shared<double> sums;           // [2][rows][dv]: of kept tokens, of the others
  simt::Shared<double> scratch;        // [threads]
  simt::Shared<float> weights;         // [tokens][pitch], or logits
  simt::Shared<uint32_t> bad;          // [tokens]
  simt::Shared<int32_t> first, limit;  // [rows]
  simt::Shared<float> lse2, lse2_low, slope2;
  simt::Shared<float> tile;  // last: its pitch is that of K, then that of V

  static SIMT_DEVICE QualityShared Make(uint32_t tokens, uint32_t rows, uint32_t dv) {
    size_t at = 0;
    const auto next = [&at](size_t count, size_t size) {
      std::byte* const here = simt::SharedMemory(at);
      at += count * size;
      return here;
    };
    return {simt::Shared<double>(next(size_t{2} * rows * dv, 8)),
            simt::Shared<double>(next(kQualityThreads, 8)),
            simt::Shared<float>(next(tokens * QualityWeightPitch(rows), 4)),
            simt::Shared<uint32_t>(next(tokens, 4)),
            simt::Shared<int32_t>(next(rows, 4)),
            simt::Shared<int32_t>(next(rows, 4)),
            simt::Shared<float>(next(rows, 4)),
            simt::Shared<float>(next(rows, 4)),
            simt::Shared<float>(next(rows, 4)),
            simt::Shared<float>(simt::SharedMemory(at))};
  }
};

// kSlots channels a thread, in all at least as many as a row of V has.
template <uint32_t kTokens, uint32_t kRows, uint32_t kSlots>
class RowMeter {
 public:
  SIMT_DEVICE RowMeter(const QualityItem& item, uint32_t kv_head, uint32_t first_row)
      : item_(item),
        query_(item.query),
        head_(kv_head),
        row0_(uint64_t{kv_head} * item.query.unit_count + first_row),
        count_(item.query.unit_count - first_row < kRows ? item.query.unit_count - first_row
                                                         : kRows),
        dv_(item.query.v.row_elems),
        my_row_(simt::ThreadX() % kRows),
        my_part_(simt::ThreadX() / kRows),
        s_(QualityShared::Make(kTokens, kRows, dv_)) {}

  SIMT_DEVICE void Run() {
    TakeRows();
    uint32_t begin = ~0u, end = 0;
    for (uint32_t r = 0; r < kRows; ++r) {
      const auto first = static_cast<uint32_t>(s_.first[r]);
      const auto limit = static_cast<uint32_t>(s_.limit[r]);
      if (limit > end) end = limit;
      if (limit > 0 && first < begin) begin = first;
    }
    if (end == 0) return;  // no row sees anything: TakeRows has said so
    begin -= begin % kQualityChunk;
    if (item_.finds_lse != 0) FindLse(begin, end);
    double mass = 0, total = 0;
    AddTokens(begin, end, &mass, &total);
    Finish(mass, total);
  }

 private:
  static constexpr uint32_t kItems = kRows / 4 * kTokens;  // four rows and a token each
  static constexpr uint32_t kOfThread = (kItems + kQualityThreads - 1) / kQualityThreads;
  static constexpr uint32_t kParts = kQualityThreads / kRows;  // threads that share a row's sums
  static constexpr uint32_t kPitch = QualityWeightPitch(kRows);

  struct Sums {
    float of[kSlots][kRows];
  };

  SIMT_DEVICE const QueryRow& Row(uint32_t r) const { return query_.rows[row0_ + r]; }

  SIMT_DEVICE void TakeRows() {
    const uint32_t r = simt::ThreadX();
    if (r < kRows) {
      const bool real = r < count_;
      const int32_t limit = real ? simt::Load(&Row(r).limit) : 0;
      s_.limit[r] = limit;
      s_.first[r] = real ? simt::Load(&Row(r).first) : 0;
      s_.lse2[r] = real ? simt::Load(&Row(r).lse2) : 0.0f;
      s_.lse2_low[r] = real ? simt::Load(&Row(r).lse2_low) : 0.0f;
      s_.slope2[r] = real ? simt::Load(&Row(r).slope2) : 0.0f;
      if (real) simt::Store(&item_.out[row0_ + r].seen, limit > 0 ? 1u : 0u);
    }
    for (uint32_t i = simt::ThreadX(); i < 2 * kRows * dv_; i += kQualityThreads) s_.sums[i] = 0;
    simt::SyncThreads();
  }

  // The next tile: `number(row, token, product)` goes to weights[token][row] for every pair that
  // sees each other, `unseen` for the others. Leaves the tile of V.
  template <class Number>
  SIMT_DEVICE void LoadTokens(uint32_t begin, float unseen, Number number) {
    const uint32_t left = query_.tokens - begin, count = left < kTokens ? left : kTokens;
    float products[kOfThread][4] = {};
    if (simt::ThreadX() < kTokens) s_.bad[simt::ThreadX()] = 0;
    simt::SyncThreads();
    if (item_.a.base == nullptr) {
      LoadTile(query_.k, head_, begin, count, kTokens, kQualityThreads, s_.tile, s_.bad);
      simt::SyncThreads();
      const uint32_t dk = query_.k.row_elems;
      SIMT_UNROLL
      for (uint32_t i = 0; i < kOfThread; ++i) {
        const uint32_t at = simt::ThreadX() + i * kQualityThreads, row = at / kTokens * 4;
        if (at >= kItems || row >= count_) continue;
        MultiplyRows<4>(s_.tile, at % kTokens, dk, query_.q_rows + (row0_ + row) * dk, count_ - row,
                        products[i]);
      }
      simt::SyncThreads();
    }
    LoadTile(query_.v, head_, begin, count, kTokens, kQualityThreads, s_.tile, s_.bad);
    simt::SyncThreads();
    SIMT_UNROLL
    for (uint32_t i = 0; i < kOfThread; ++i) {
      const uint32_t at = simt::ThreadX() + i * kQualityThreads;
      if (at >= kItems) continue;
      const uint32_t token = at % kTokens, row = at / kTokens * 4;
      const auto p = static_cast<int32_t>(begin + token);
      float numbers[4];
      SIMT_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        const bool sees = s_.bad[token] == 0 && p >= s_.first[row + j] && p < s_.limit[row + j];
        numbers[j] = sees ? number(row + j, p, products[i][j]) : unseen;
      }
      simt::Shared<simt::Vec16> four((reinterpret_cast<std::byte*>(s_.weights.data())));
      four[(token * kPitch + row) / 4] = {simt::FloatBits(numbers[0]), simt::FloatBits(numbers[1]),
                                          simt::FloatBits(numbers[2]), simt::FloatBits(numbers[3])};
    }
    simt::SyncThreads();
  }

  // Logit of a pair in base 2, less `high` + `low`.
  SIMT_DEVICE float LogitAbove(uint32_t row, int32_t p, float product, float high,
                               float low) const {
    float logit = -high;
    if (s_.slope2[row] != 0) {
      logit = simt::Fma(s_.slope2[row], static_cast<float>(p - (s_.limit[row] - 1)), logit);
    }
    const LogitRule& rule = item_.rule;
    if (rule.cap2 > 0) {
      logit += CappedLogit(rule, product).logit2 - low;
    } else {
      logit = simt::Fma(product, rule.scale2, logit) + simt::Fma(product, rule.scale2_low, -low);
    }
    return logit;
  }

  // Sum over the threads of a row, in their order, for all of them.
  SIMT_DEVICE double AddParts(double part) {
    s_.scratch[simt::ThreadX()] = part;
    simt::SyncThreads();
    double sum = 0;
    for (uint32_t j = 0; j < kParts; ++j) sum += s_.scratch[j * kRows + my_row_];
    simt::SyncThreads();
    return sum;
  }

  // First pass: tops wander upwards, and the sums with them.
  SIMT_DEVICE void FindLse(uint32_t begin, uint32_t end) {
    const float unseen = simt::BitsFloat(0xFF800000u);
    float top = unseen;
    double sum = 0;
    for (uint32_t p = begin; p < end; p += kTokens) {
      LoadTokens(p, unseen, [this](uint32_t row, int32_t token, float product) {
        return LogitAbove(row, token, product, 0.0f, 0.0f);
      });
      for (uint32_t t = my_part_; t < kTokens; t += kParts) {
        const float logit = s_.weights[t * kPitch + my_row_];
        if (logit == unseen) continue;
        if (logit > top) {
          sum *= simt::Exp2Approx(top - logit);
          top = logit;
        }
        sum += simt::Exp2Approx(logit - top);
      }
      simt::SyncThreads();
    }
    s_.scratch[simt::ThreadX()] = top;
    simt::SyncThreads();
    double best = top;
    for (uint32_t j = 0; j < kParts; ++j) {
      const double other = s_.scratch[j * kRows + my_row_];
      if (other > best) best = other;
    }
    simt::SyncThreads();
    const double all = AddParts(sum == 0 ? 0 : sum * exp2(top - best));
    if (my_part_ == 0 && s_.limit[my_row_] > 0) {
      const double lse2 = AddLogs2(best + log2(all), simt::Load(&Row(my_row_).sink2));
      const auto high = static_cast<float>(lse2);
      s_.lse2[my_row_] = high;
      s_.lse2_low[my_row_] = static_cast<float>(lse2 - high);
    }
    simt::SyncThreads();
  }

  SIMT_DEVICE uint32_t KeptBits(uint32_t p) const {
    return simt::Load(item_.kept + uint64_t{head_} * item_.words + p / 32) >> p % 32;
  }

  // Second pass: weights and weighted values.
  SIMT_DEVICE void AddTokens(uint32_t begin, uint32_t end, double* mass, double* total) {
    Sums kept = {}, rest = {};
    for (uint32_t p = begin; p < end; p += kTokens) {
      LoadTokens(p, 0.0f, [this](uint32_t row, int32_t token, float product) {
        if (item_.a.base != nullptr) {
          return TensorAt(item_.a, simt::Load(&Row(row).tensor_row), simt::Load(&Row(row).head),
                          static_cast<uint64_t>(token));
        }
        return simt::Exp2Approx(LogitAbove(row, token, product, s_.lse2[row], s_.lse2_low[row]));
      });
      float tile_mass = 0, tile_total = 0;
      for (uint32_t t = my_part_; t < kTokens && p + t < end; t += kParts) {
        const float weight = s_.weights[t * kPitch + my_row_];
        tile_total += weight;
        if ((KeptBits(p + t) & 1u) != 0) tile_mass += weight;
      }
      *total += tile_total;
      *mass += tile_mass;
      AddValues(p, end, kept, rest);
      if ((p + kTokens) % kQualityChunk == 0 || p + kTokens >= end) {
        Join(0, kept);
        Join(1, rest);
      }
      simt::SyncThreads();
    }
  }

  SIMT_DEVICE void AddValues(uint32_t p, uint32_t end, Sums& kept, Sums& rest) const {
    uint32_t bits = 0;
    for (uint32_t t = 0; t < kTokens && p + t < end; ++t, bits >>= 1) {
      if (t % 32 == 0) bits = KeptBits(p + t);
      if (s_.bad[t] != 0) continue;
      if ((bits & 1u) != 0) {
        AddToken(t, kept);
      } else {
        AddToken(t, rest);
      }
    }
  }

  SIMT_DEVICE void AddToken(uint32_t t, Sums& sums) const {
    const simt::Shared<simt::Vec16> four(reinterpret_cast<std::byte*>(s_.weights.data()));
    float values[kSlots];
    SIMT_UNROLL
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const uint32_t e = simt::ThreadX() + slot * kQualityThreads;
      values[slot] = s_.tile[t * TilePitch(dv_) + (e < dv_ ? e : dv_ - 1)];
    }
    SIMT_UNROLL
    for (uint32_t row = 0; row < kRows; row += 4) {
      const simt::Vec16 words = four[(t * kPitch + row) / 4];
      const float weights[4] = {simt::BitsFloat(words.x), simt::BitsFloat(words.y),
                                simt::BitsFloat(words.z), simt::BitsFloat(words.w)};
      SIMT_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        SIMT_UNROLL
        for (uint32_t slot = 0; slot < kSlots; ++slot) {
          sums.of[slot][row + j] = simt::Fma(weights[j], values[slot], sums.of[slot][row + j]);
        }
      }
    }
  }

  // A chunk's sums join those in float64 and begin again.
  SIMT_DEVICE void Join(uint32_t which, Sums& sums) const {
    SIMT_UNROLL
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const uint32_t e = simt::ThreadX() + slot * kQualityThreads;
      SIMT_UNROLL
      for (uint32_t r = 0; r < kRows; ++r) {
        if (e < dv_) s_.sums[(which * kRows + r) * dv_ + e] += sums.of[slot][r];
        sums.of[slot][r] = 0.0f;
      }
    }
  }

  // What a declared learned sink holds of this thread's row.
  SIMT_DEVICE double SinkShare(double total) const {
    if (item_.has_sink == 0) return 0;
    if (item_.a.base != nullptr) return total < 1 ? 1 - total : 0;
    return exp2(simt::Load(&Row(my_row_).sink2) - s_.lse2[my_row_] - s_.lse2_low[my_row_]);
  }

  SIMT_DEVICE void Finish(double mass_part, double total_part) {
    const double mass = AddParts(mass_part), total = AddParts(total_part);
    const bool seen = s_.limit[my_row_] > 0;
    const double kept_share = seen ? mass + SinkShare(total) : 0;
    double error = 0, output = 0;
    for (uint32_t e = my_part_; seen && e < dv_; e += kParts) {
      const double kept = s_.sums[my_row_ * dv_ + e];
      const double rest = s_.sums[(kRows + my_row_) * dv_ + e];
      const double truth =
          query_.o_rows == nullptr
              ? kept + rest
              : static_cast<double>(simt::Load(query_.o_rows + (row0_ + my_row_) * dv_ + e));
      const double off = (mass > 0 ? kept / kept_share : 0) - truth;
      error += off * off;
      output += truth * truth;
    }
    error = AddParts(error);
    output = AddParts(output);
    if (my_part_ != 0 || !seen) return;
    QualityRow& out = item_.out[row0_ + my_row_];
    simt::Store(&out.mass, mass);
    simt::Store(&out.total, total);
    simt::Store(&out.error_square, error);
    simt::Store(&out.output_square, output);
  }

  const QualityItem& item_;
  const QueryItem& query_;
  const uint32_t head_;
  const uint64_t row0_;   // of the item's rows
  const uint32_t count_;  // rows; those behind are empty
  const uint32_t dv_;
  const uint32_t my_row_, my_part_;  // whose sums this thread shares in
  const QualityShared s_;
};

// Grid: x pieces of kRows rows, y KV heads, z items.
template <uint32_t kTokens, uint32_t kRows, uint32_t kSlots>
SIMT_KERNEL void SIMT_BOUNDS(kQualityThreads, 3) MeasureRowsKernel(const QualityItem* items) {
  const QualityItem& item = items[simt::BlockZ()];
  const uint32_t first_row = simt::BlockX() * kRows;
  if (simt::BlockY() >= item.query.v.heads || first_row >= item.query.unit_count) return;
  RowMeter<kTokens, kRows, kSlots>(item, simt::BlockY(), first_row).Run();
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUALITY_CUH_
