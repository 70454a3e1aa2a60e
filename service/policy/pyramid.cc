#include "service/policy/pyramid.h"

#include "kernels/core/share_out.h"

namespace kvtriage {

std::vector<uint32_t> PyramidSlots(uint32_t layers, uint32_t slots, uint32_t candidates,
                                   uint32_t beta, uint32_t least) {
  if (layers == 1) return {slots};
  const uint64_t t = slots, m = candidates, steps = layers - 1;
  const bool clipped = t * (2 * uint64_t{beta} - 1) > m * beta;
  const uint64_t first = clipped ? m : t * (2 * uint64_t{beta} - 1);  // of layer 0, times den/steps
  const uint64_t fall = clipped ? m - t : t * (beta - 1);             // half of first - last
  const uint64_t den = clipped ? steps : beta * steps;
  std::vector<uint64_t> num(layers);
  for (uint64_t l = 0; l < layers; ++l) num[l] = first * steps - 2 * l * fall;
  return ShareOut(num, den, t * layers, least, candidates);
}

}  // namespace kvtriage
