// The passes of the radix select over the scores, once per instruction set. Keys are made again in
// every pass: that is a few vector operations, cheaper than a key array that has to be written,
// paged in and read back.
#if defined(KVTRIAGE_KERNELS_CPU_RANK_CUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_RANK_CUT_INL_H_
#undef KVTRIAGE_KERNELS_CPU_RANK_CUT_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_RANK_CUT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {
namespace {  // names must not meet those of other operations
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using U = hn::RebindToUnsigned<F>;
using I = hn::RebindToSigned<F>;

inline hn::Vec<U> KeysOf(hn::Vec<F> scores) {
  const F f;
  const U u;
  const I i;
  scores = hn::Add(scores, hn::Zero(f));  // -0 becomes +0
  const auto bits = hn::BitCast(i, scores);
  const auto flip = hn::Or(hn::BitCast(u, hn::BroadcastSignBit(bits)), hn::Set(u, 0x80000000u));
  const auto key = hn::Xor(hn::BitCast(u, bits), flip);
  return hn::IfThenElseZero(hn::RebindMask(u, hn::Eq(scores, scores)), key);
}

// The last, partial vector of `n` scores; lanes past the end get NaN, the lowest key.
inline hn::Vec<F> LoadTail(const float* scores, size_t count) {
  const F f;
  HWY_ALIGN float padded[hn::MaxLanes(f)];
  hn::Store(hn::NaN(f), f, padded);
  for (size_t i = 0; i < count; ++i) padded[i] = scores[i];
  return hn::Load(f, padded);
}

// Adds the top 11 bits of every key to `histogram`, four copies of 2048 bins: neighbours with equal
// digits must not wait for each other's increment.
void CountTopDigits(const float* HWY_RESTRICT scores, size_t n, uint32_t* HWY_RESTRICT histogram) {
  const F f;
  const U u;
  const size_t lanes = hn::Lanes(f);
  constexpr size_t kChunk = 4 * hn::MaxLanes(F());
  HWY_ALIGN uint32_t digits[kChunk];
  size_t i = 0;
  for (; i + kChunk <= n; i += kChunk) {
    for (size_t j = 0; j < kChunk; j += lanes) {
      hn::Store(hn::ShiftRight<21>(KeysOf(hn::LoadU(f, scores + i + j))), u, digits + j);
    }
    for (size_t j = 0; j < kChunk; j += 4) {
      ++histogram[digits[j]];
      ++histogram[2048 + digits[j + 1]];
      ++histogram[4096 + digits[j + 2]];
      ++histogram[6144 + digits[j + 3]];
    }
  }
  for (; i < n; i += lanes) {
    const size_t count = n - i < lanes ? n - i : lanes;
    hn::Store(hn::ShiftRight<21>(KeysOf(LoadTail(scores + i, count))), u, digits);
    for (size_t j = 0; j < count; ++j) ++histogram[digits[j]];
  }
}

// Collects the keys whose top 11 bits are `digit`; returns their number. `found` has room for them
// and one vector.
size_t CollectDigit(const float* HWY_RESTRICT scores, size_t n, uint32_t digit,
                    uint32_t* HWY_RESTRICT found) {
  const F f;
  const U u;
  const size_t lanes = hn::Lanes(f);
  const auto wanted = hn::Set(u, digit);
  size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto keys = KeysOf(hn::LoadU(f, scores + i));
    const auto hit = hn::Eq(hn::ShiftRight<21>(keys), wanted);
    hn::StoreU(hn::Compress(keys, hit), u, found + count);
    count += hn::CountTrue(u, hit);
  }
  if (i < n) {
    HWY_ALIGN uint32_t keys[hn::MaxLanes(f)];
    hn::Store(KeysOf(LoadTail(scores + i, n - i)), u, keys);
    for (size_t j = 0; j < n - i; ++j) {
      if (keys[j] >> 21 == digit) found[count++] = keys[j];
    }
  }
  return count;
}

size_t CountAboveKey(const float* HWY_RESTRICT scores, size_t n, uint32_t key) {
  const F f;
  const U u;
  const size_t lanes = hn::Lanes(f);
  const auto cut = hn::Set(u, key);
  size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    count += hn::CountTrue(u, hn::Gt(KeysOf(hn::LoadU(f, scores + i)), cut));
  }
  // Padding has key 0, which is never above a cut.
  if (i < n) count += hn::CountTrue(u, hn::Gt(KeysOf(LoadTail(scores + i, n - i)), cut));
  return count;
}

// One vector of WriteBestIndices: `keep` are the lanes to write.
template <class M>
inline size_t WriteLanes(hn::Vec<I> indices, M keep, int32_t* out) {
  const I i;
  const auto mask = hn::RebindMask(i, keep);
  hn::StoreU(hn::Compress(indices, mask), i, out);
  return hn::CountTrue(i, mask);
}

size_t WriteBestIndices(const float* HWY_RESTRICT scores, size_t n, uint32_t key, size_t ties,
                        int32_t* HWY_RESTRICT out) {
  const F f;
  const U u;
  const I s;
  const size_t lanes = hn::Lanes(f);
  const auto cut = hn::Set(u, key);
  const auto step = hn::Set(s, static_cast<int32_t>(lanes));
  auto indices = hn::Iota(s, 0);
  size_t written = 0, i = 0;
  // While ties are left, equal keys are taken too; the vector in which they run out, and the last,
  // partial one, go lane by lane.
  const auto write_one_by_one = [&](size_t count) {
    HWY_ALIGN uint32_t keys[hn::MaxLanes(f)];
    hn::Store(KeysOf(LoadTail(scores + i, count)), u, keys);
    for (size_t j = 0; j < count; ++j) {
      const bool tie = keys[j] == key && ties > 0;
      ties -= tie ? 1 : 0;
      if (tie || keys[j] > key) out[written++] = static_cast<int32_t>(i + j);
    }
  };
  for (; ties > 0 && i + lanes <= n; i += lanes, indices = hn::Add(indices, step)) {
    const auto keys = KeysOf(hn::LoadU(f, scores + i));
    const size_t equal = hn::CountTrue(u, hn::Eq(keys, cut));
    if (equal > ties) {
      write_one_by_one(lanes);
      continue;
    }
    ties -= equal;
    written += WriteLanes(indices, hn::Not(hn::Lt(keys, cut)), out + written);
  }
  for (; i + lanes <= n; i += lanes, indices = hn::Add(indices, step)) {
    const auto keys = KeysOf(hn::LoadU(f, scores + i));
    written += WriteLanes(indices, hn::Gt(keys, cut), out + written);
  }
  if (i < n) write_one_by_one(n - i);
  return written;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // KVTRIAGE_KERNELS_CPU_RANK_CUT_INL_H_
