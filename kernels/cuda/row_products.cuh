// A matrix times the rows of a tile of tokens, 64 rows of the matrix at a time, each block of
// products handed on as it is made: for scorers that fold them into one number per token.
#ifndef KVTRIAGE_KERNELS_CUDA_ROW_PRODUCTS_CUH_
#define KVTRIAGE_KERNELS_CUDA_ROW_PRODUCTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/list_rows.cuh"
#include "kernels/cuda/product_tile.cuh"
#include "kernels/cuda/row_products_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// Where a token's row lies; null: there is none.
struct TokenRow {
  const std::byte* elems;
  float scale;
};

// What a block shares (kRowProductsSharedBytes).
struct RowProductsShared {
  ProductTiles tiles;
  simt::Shared<TokenRow> tokens;  // at TokenPlace
  simt::Shared<double> partial;   // [16][64], in the place of the tiles
};

// So that neither the threads that load four neighbours nor those that each have four tokens of
// their own meet in a bank.
SIMT_DEVICE uint32_t TokenPlace(uint32_t token) { return token % 4 * 17 + token / 4; }

SIMT_DEVICE RowProductsShared RowProductsMemory() {
  return {TilesAt(0), simt::Shared<TokenRow>(simt::SharedMemory(kProductSharedBytes)),
          simt::Shared<double>(simt::SharedMemory(0))};
}

// By all threads: finds the rows of the block's tile of tokens. Needs a barrier behind.
SIMT_DEVICE void FindTokens(const RowProductsShared& shared, const DeviceView& view, uint32_t head,
                            uint32_t first_row, uint32_t rows) {
  if (simt::ThreadX() >= kProductTile) return;
  const uint32_t t = simt::ThreadX() % 16 * 4 + simt::ThreadX() / 16;
  TokenRow token{nullptr, 0.0f};
  if (first_row + t < rows) {
    const RowSide side = RowOf(view, head, uint64_t{first_row} + t);
    token = {side.head, side.scale};
  }
  shared.tokens[TokenPlace(t)] = token;
}

SIMT_DEVICE float TokenElement(const RowProductsShared& shared, const DeviceView& view, uint32_t t,
                               uint32_t elem) {
  const TokenRow token = shared.tokens[TokenPlace(t)];
  if (token.elems == nullptr) return 0.0f;
  return Widened({&view, token.elems, token.scale}, elem);
}

// By all threads: products of matrix(r, c), r < rows, c < the view's elements, with the tokens'
// rows. fold(r0, products): products[i][j] belongs to matrix row r0 + FirstOfA() + i, 0 behind the
// last, and token FirstOfB() + j. Ends with a barrier.
template <class Matrix, class Fold>
SIMT_DEVICE void FoldRowProducts(const RowProductsShared& shared, const DeviceView& view,
                                 uint32_t rows, Matrix matrix, Fold fold) {
  const uint32_t elems = view.row_elems;
  for (uint32_t r0 = 0; r0 < rows; r0 += kProductTile) {
    float products[4][4] = {};
    for (uint32_t c0 = 0; c0 < elems; c0 += kProductSteps) {
      LoadByRows(shared.tiles.a, [&](uint32_t i, uint32_t step) {
        return r0 + i < rows && c0 + step < elems ? matrix(r0 + i, c0 + step) : 0.0f;
      });
      LoadByRows(shared.tiles.b, [&](uint32_t i, uint32_t step) {
        return c0 + step < elems ? TokenElement(shared, view, i, c0 + step) : 0.0f;
      });
      simt::SyncThreads();
      MultiplyTiles(shared.tiles, products);
      simt::SyncThreads();
    }
    fold(r0, products);
  }
}

// By all threads, whose sums[j] belong to token FirstOfB() + j: put(token, total) for each token
// of the tile, totals in a fixed order. Ends with a barrier.
template <class Put>
SIMT_DEVICE void JoinTokenSums(const RowProductsShared& shared, const double (&sums)[4], Put put) {
  const uint32_t thread = simt::ThreadX(), part = thread / 16;
  SIMT_UNROLL
  for (uint32_t j = 0; j < 4; ++j) {
    shared.partial[part * kProductTile + j * 16 + thread % 16] = sums[j];
  }
  simt::SyncThreads();
  if (thread < kProductTile) {
    double total = 0;
    for (uint32_t p = 0; p < 16; ++p) total += shared.partial[p * kProductTile + thread];
    put(thread % 16 * 4 + thread / 16, total);
  }
  simt::SyncThreads();
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_ROW_PRODUCTS_CUH_
