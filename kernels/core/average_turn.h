// The mean of the rotations by a run of positions: no rotation itself, it shortens what turns fast.
// Turned channels are multiplied with the rope's attention factor, as those of queries are.
#ifndef KVTRIAGE_KERNELS_CORE_AVERAGE_TURN_H_
#define KVTRIAGE_KERNELS_CORE_AVERAGE_TURN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvtriage/kernels/rotate.h"

namespace kvtriage {

class AverageTurn {
 public:
  // Of positions first, first + 1, .., first + count - 1, in float64. Null: nothing turns.
  AverageTurn(const Rope* rope, uint64_t first, uint32_t count);

  // x becomes R x; elements `step` apart.
  void Apply(double* x, size_t step) const;
  // m [size][size] becomes R m R^T.
  void ApplyBothSides(std::vector<double>& m, size_t size) const;

 private:
  const Rope* rope_;
  std::vector<double> cosines_, sines_;  // per pair of channels
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_AVERAGE_TURN_H_
