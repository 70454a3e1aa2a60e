// Turns the query rows of an input from before RoPE; does nothing to others.
#ifndef KVTRIAGE_KERNELS_CPU_QUERY_TURNER_H_
#define KVTRIAGE_KERNELS_CPU_QUERY_TURNER_H_

#include <cstddef>
#include <vector>

#include "kvtriage/kernels/attention.h"

namespace kvtriage {

class QueryTurner {
 public:
  explicit QueryTurner(const QueryRotation& rotation);  // must outlive the turner

  // Turns row `row` of the tensor, [dk] at `q`. Heads of one row after the other are fast.
  void Turn(size_t row, float* q);

 private:
  static constexpr size_t kNoRow = ~size_t{0};

  const QueryRotation& rotation_;
  size_t row_ = kNoRow;  // whose angles are known
  std::vector<float> cosines_, sines_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_QUERY_TURNER_H_
