// Float memory for vector code: aligned for the widest vectors, not initialised, freed with its
// owner.
#ifndef KVTRIAGE_KERNELS_CPU_ALIGNED_FLOATS_H_
#define KVTRIAGE_KERNELS_CPU_ALIGNED_FLOATS_H_

#include <cstddef>

#include "hwy/aligned_allocator.h"

namespace kvtriage {

class AlignedFloats {
 public:
  // Room for at least `size` floats; what was there before is lost when it has to grow.
  float* Reserve(size_t size) {
    if (size > size_) {
      floats_.reset();
      floats_ = hwy::AllocateAligned<float>(size);
      size_ = size;
    }
    return floats_.get();
  }

  float* data() { return floats_.get(); }
  const float* data() const { return floats_.get(); }

 private:
  hwy::AlignedFreeUniquePtr<float[]> floats_;
  size_t size_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_ALIGNED_FLOATS_H_
