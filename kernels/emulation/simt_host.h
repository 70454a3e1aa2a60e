// kernels/cuda/simt.h for compilers other than nvcc: every call asks the emulator.
#ifndef KVTRIAGE_KERNELS_EMULATION_SIMT_HOST_H_
#define KVTRIAGE_KERNELS_EMULATION_SIMT_HOST_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/emulation/instructions.h"

#define SIMT_KERNEL
#define SIMT_BOUNDS(threads, blocks)
#define SIMT_DEVICE inline
#define SIMT_UNROLL
#define SIMT_UNROLL_BY(times)

namespace kvtriage::simt {

inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

struct alignas(8) Vec8 {
  uint32_t x, y;
};
struct alignas(16) Vec16 {
  uint32_t x, y, z, w;
};

inline uint32_t ThreadX() { return emulation::ThreadIndex(); }
inline uint32_t BlockX() { return emulation::BlockIndex().x; }
inline uint32_t BlockY() { return emulation::BlockIndex().y; }
inline uint32_t BlockZ() { return emulation::BlockIndex().z; }
inline uint32_t GridX() { return emulation::GridSize().x; }
inline uint32_t BlockThreads() { return emulation::BlockThreads(); }

inline std::byte* SharedMemory(size_t offset) { return emulation::SharedMemory() + offset; }

// Inlined whatever the optimisation level: the return address in the kernel tells one place in the
// code from another.
template <class T>
[[gnu::always_inline]] inline T Load(const T* p) {
  static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0);
  if (emulation::CountsAccesses()) {
    emulation::RecordAccess(emulation::Access::kGlobalLoad, p, sizeof(T));
  }
  return *p;
}
template <class T>
[[gnu::always_inline]] inline void Store(T* p, std::type_identity_t<T> value) {
  static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0);
  if (emulation::CountsAccesses()) {
    emulation::RecordAccess(emulation::Access::kGlobalStore, p, sizeof(T));
  }
  *p = value;
}

template <class T>
class Shared {
 public:
  explicit Shared(std::byte* bytes) : data_(reinterpret_cast<T*>(bytes)) {}
  [[gnu::always_inline]] T& operator[](size_t i) const {
    if (emulation::CountsAccesses()) {
      emulation::RecordAccess(emulation::Access::kShared, data_ + i, sizeof(T));
    }
    return data_[i];
  }
  T* data() const { return data_; }

 private:
  T* data_;
};

inline void SyncThreads() { emulation::BlockBarrier(0, emulation::BlockThreads()); }
inline void SyncNamed(uint32_t barrier, uint32_t threads) {
  emulation::BlockBarrier(barrier, threads);
}
inline void SyncWarp(uint32_t mask = kAllLanes) { emulation::WarpBarrier(mask); }

template <class T>
T ShuffleValue(uint32_t mask, T value, emulation::Shuffle mode, uint32_t argument, uint32_t width) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulation::ShuffleBits(mask, bits, mode, argument, width);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T ShuffleXor(uint32_t mask, T value, uint32_t lanes, uint32_t width = 32) {
  return ShuffleValue(mask, value, emulation::Shuffle::kXor, lanes, width);
}
template <class T>
T ShuffleDown(uint32_t mask, T value, uint32_t lanes, uint32_t width = 32) {
  return ShuffleValue(mask, value, emulation::Shuffle::kDown, lanes, width);
}
template <class T>
T ShuffleUp(uint32_t mask, T value, uint32_t lanes, uint32_t width = 32) {
  return ShuffleValue(mask, value, emulation::Shuffle::kUp, lanes, width);
}
template <class T>
T ShuffleFrom(uint32_t mask, T value, uint32_t lane, uint32_t width = 32) {
  return ShuffleValue(mask, value, emulation::Shuffle::kIndex, lane, width);
}
inline uint32_t Ballot(uint32_t mask, bool predicate) {
  return emulation::BallotBits(mask, predicate);
}
template <class T>
uint32_t MatchAny(uint32_t mask, T value) {
  static_assert(std::is_integral_v<T>);
  return emulation::MatchAnyBits(mask, static_cast<uint64_t>(value));
}
inline uint32_t ReduceAdd(uint32_t mask, uint32_t value) {
  return emulation::ReduceBits(mask, value, emulation::Reduction::kAdd);
}
inline uint32_t ReduceMin(uint32_t mask, uint32_t value) {
  return emulation::ReduceBits(mask, value, emulation::Reduction::kMin);
}
inline uint32_t ReduceMax(uint32_t mask, uint32_t value) {
  return emulation::ReduceBits(mask, value, emulation::Reduction::kMax);
}
inline uint32_t ReduceAnd(uint32_t mask, uint32_t value) {
  return emulation::ReduceBits(mask, value, emulation::Reduction::kAnd);
}
inline uint32_t ReduceOr(uint32_t mask, uint32_t value) {
  return emulation::ReduceBits(mask, value, emulation::Reduction::kOr);
}

template <class T>
T AtomicAdd(T* p, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "sums of floats would depend on the order of arrival");
  return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);
}
template <class T>
T AtomicMax(T* p, std::type_identity_t<T> value) {
  T seen = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (seen < value &&
         !__atomic_compare_exchange_n(p, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return seen;
}
template <class T>
T AtomicCas(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> wanted) {
  __atomic_compare_exchange_n(p, &expected, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T>
T AtomicExchange(T* p, std::type_identity_t<T> value) {
  return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}
inline uint32_t LoadAcquire(const uint32_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
inline void StoreRelease(uint32_t* p, uint32_t value) {
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
inline uint32_t LoadAcquireSystem(const uint32_t* p) { return LoadAcquire(p); }
inline void StoreReleaseSystem(uint32_t* p, uint32_t value) { StoreRelease(p, value); }
inline void SpinPause() { emulation::PauseSpin(); }

inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::Mma16816(emulation::MmaType::kBf16, d, a, b);
}
inline void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulation::Mma16816(emulation::MmaType::kF16, d, a, b);
}
template <uint32_t kCount, bool kTransposed = false>
void LdMatrix(uint32_t (&r)[kCount], const void* row) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  emulation::LoadMatrices(r, kCount, kTransposed, row);
}
inline void AsyncCopy16(void* shared, const void* global, uint32_t bytes = 16) {
  emulation::CopyAsync16(shared, global, bytes);
}
inline void AsyncCommit() { emulation::CommitCopies(); }
template <uint32_t kPending>
void AsyncWait() {
  emulation::WaitCopies(kPending);
}

// A product that is rounded before it is added to anything.
inline float MulRounded(float a, float b) { return a * b; }
inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float DivideApprox(float a, float b) { return a / b; }
inline float Exp2Approx(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}
inline uint32_t FloatBits(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}
inline float BitsFloat(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
inline uint32_t Popcount(uint32_t bits) { return static_cast<uint32_t>(__builtin_popcount(bits)); }
inline uint32_t TrailingZeros(uint32_t bits) { return static_cast<uint32_t>(__builtin_ctz(bits)); }

}  // namespace kvtriage::simt

#endif  // KVTRIAGE_KERNELS_EMULATION_SIMT_HOST_H_
