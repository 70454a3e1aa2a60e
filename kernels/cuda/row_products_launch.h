// Sizes of a block that multiplies a matrix with the rows of tokens (row_products.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_ROW_PRODUCTS_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_ROW_PRODUCTS_LAUNCH_H_

#include <cstddef>

#include "kernels/cuda/product_tile.h"

namespace kvtriage {

// The tiles, later partial sums; where the tokens' rows lie, 16 bytes each.
inline constexpr size_t kRowProductsSharedBytes = kProductSharedBytes + 4 * 17 * 16;

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_ROW_PRODUCTS_LAUNCH_H_
