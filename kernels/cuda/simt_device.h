// kernels/cuda/simt.h for nvcc: CUDA built-ins and PTX.
#ifndef KVTRIAGE_KERNELS_CUDA_SIMT_DEVICE_H_
#define KVTRIAGE_KERNELS_CUDA_SIMT_DEVICE_H_

#include <cstddef>
#include <cstdint>

#define SIMT_KERNEL __global__
#define SIMT_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define SIMT_DEVICE __device__ __forceinline__
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_PRAGMA(text) _Pragma(#text)
#define SIMT_UNROLL_BY(times) SIMT_PRAGMA(unroll times)

namespace kvtriage::simt {

inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

struct alignas(8) Vec8 {
  uint32_t x, y;
};
struct alignas(16) Vec16 {
  uint32_t x, y, z, w;
};

SIMT_DEVICE uint32_t ThreadX() { return threadIdx.x; }
SIMT_DEVICE uint32_t BlockX() { return blockIdx.x; }
SIMT_DEVICE uint32_t BlockY() { return blockIdx.y; }
SIMT_DEVICE uint32_t BlockZ() { return blockIdx.z; }
SIMT_DEVICE uint32_t GridX() { return gridDim.x; }
SIMT_DEVICE uint32_t BlockThreads() { return blockDim.x; }

extern __shared__ __align__(128) unsigned char shared_bytes[];
SIMT_DEVICE std::byte* SharedMemory(size_t offset) {
  return reinterpret_cast<std::byte*>(shared_bytes) + offset;
}

template <class T>
struct Same {
  using type = T;
};

template <class T>
SIMT_DEVICE T Load(const T* p) {
  return *p;
}
template <class T>
SIMT_DEVICE void Store(T* p, typename Same<T>::type value) {
  *p = value;
}

template <class T>
class Shared {
 public:
  SIMT_DEVICE explicit Shared(std::byte* bytes) : data_(reinterpret_cast<T*>(bytes)) {}
  SIMT_DEVICE T& operator[](size_t i) const { return data_[i]; }
  SIMT_DEVICE T* data() const { return data_; }

 private:
  T* data_;
};

SIMT_DEVICE void SyncThreads() { __syncthreads(); }
SIMT_DEVICE void SyncNamed(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
SIMT_DEVICE void SyncWarp(uint32_t mask = kAllLanes) { __syncwarp(mask); }

template <class T>
SIMT_DEVICE T ShuffleXor(uint32_t mask, T value, uint32_t lanes, uint32_t width = 32) {
  return __shfl_xor_sync(mask, value, lanes, width);
}
template <class T>
SIMT_DEVICE T ShuffleDown(uint32_t mask, T value, uint32_t lanes, uint32_t width = 32) {
  return __shfl_down_sync(mask, value, lanes, width);
}
template <class T>
SIMT_DEVICE T ShuffleUp(uint32_t mask, T value, uint32_t lanes, uint32_t width = 32) {
  return __shfl_up_sync(mask, value, lanes, width);
}
template <class T>
SIMT_DEVICE T ShuffleFrom(uint32_t mask, T value, uint32_t lane, uint32_t width = 32) {
  return __shfl_sync(mask, value, lane, width);
}
SIMT_DEVICE uint32_t Ballot(uint32_t mask, bool predicate) {
  return __ballot_sync(mask, predicate);
}
template <class T>
SIMT_DEVICE uint32_t MatchAny(uint32_t mask, T value) {
  return __match_any_sync(mask, value);
}
SIMT_DEVICE uint32_t ReduceAdd(uint32_t mask, uint32_t value) {
  return __reduce_add_sync(mask, value);
}
SIMT_DEVICE uint32_t ReduceMin(uint32_t mask, uint32_t value) {
  return __reduce_min_sync(mask, value);
}
SIMT_DEVICE uint32_t ReduceMax(uint32_t mask, uint32_t value) {
  return __reduce_max_sync(mask, value);
}
SIMT_DEVICE uint32_t ReduceAnd(uint32_t mask, uint32_t value) {
  return __reduce_and_sync(mask, value);
}
SIMT_DEVICE uint32_t ReduceOr(uint32_t mask, uint32_t value) {
  return __reduce_or_sync(mask, value);
}

// CUDA names its 64-bit atomics by `unsigned long long`.
template <class T>
struct AtomicType {
  using type = T;
};
template <>
struct AtomicType<uint64_t> {
  using type = unsigned long long;
};
template <class T>
SIMT_DEVICE typename AtomicType<T>::type* AtomicPointer(T* p) {
  return reinterpret_cast<typename AtomicType<T>::type*>(p);
}
template <class T>
SIMT_DEVICE T AtomicAdd(T* p, typename Same<T>::type value) {
  static_assert(static_cast<T>(0.5) == T{0}, "sums of floats would depend on the order of arrival");
  return atomicAdd(AtomicPointer(p), static_cast<typename AtomicType<T>::type>(value));
}
template <class T>
SIMT_DEVICE T AtomicMax(T* p, typename Same<T>::type value) {
  return atomicMax(AtomicPointer(p), static_cast<typename AtomicType<T>::type>(value));
}
template <class T>
SIMT_DEVICE T AtomicCas(T* p, typename Same<T>::type expected, typename Same<T>::type wanted) {
  using A = typename AtomicType<T>::type;
  return atomicCAS(AtomicPointer(p), static_cast<A>(expected), static_cast<A>(wanted));
}
template <class T>
SIMT_DEVICE T AtomicExchange(T* p, typename Same<T>::type value) {
  return atomicExch(AtomicPointer(p), static_cast<typename AtomicType<T>::type>(value));
}
SIMT_DEVICE uint32_t LoadAcquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
SIMT_DEVICE void StoreRelease(uint32_t* p, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
SIMT_DEVICE uint32_t LoadAcquireSystem(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
SIMT_DEVICE void StoreReleaseSystem(uint32_t* p, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
SIMT_DEVICE void SpinPause() { __nanosleep(40); }

SIMT_DEVICE void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
SIMT_DEVICE void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

SIMT_DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
template <uint32_t kCount, bool kTransposed = false>
SIMT_DEVICE void LdMatrix(uint32_t (&r)[kCount], const void* row) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  const uint32_t at = SharedAddress(row);
  if constexpr (kCount == 1 && !kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(at)
                 : "memory");
  } else if constexpr (kCount == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(at)
                 : "memory");
  } else if constexpr (kCount == 2 && !kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at)
                 : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at)
                 : "memory");
  } else if constexpr (!kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  }
}

SIMT_DEVICE void AsyncCopy16(void* shared, const void* global, uint32_t bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}
SIMT_DEVICE void AsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <uint32_t kPending>
SIMT_DEVICE void AsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

SIMT_DEVICE float MulRounded(float a, float b) { return __fmul_rn(a, b); }
SIMT_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SIMT_DEVICE float DivideApprox(float a, float b) { return __fdividef(a, b); }
SIMT_DEVICE float Exp2Approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SIMT_DEVICE uint32_t FloatBits(float f) { return __float_as_uint(f); }
SIMT_DEVICE float BitsFloat(uint32_t bits) { return __uint_as_float(bits); }
SIMT_DEVICE uint32_t Popcount(uint32_t bits) { return static_cast<uint32_t>(__popc(bits)); }
SIMT_DEVICE uint32_t TrailingZeros(uint32_t bits) {
  return static_cast<uint32_t>(__ffs(static_cast<int>(bits)) - 1);
}

}  // namespace kvtriage::simt

#endif  // KVTRIAGE_KERNELS_CUDA_SIMT_DEVICE_H_
