// What projecting values is started with (projected_norms.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/product_tile.h"
#include "kernels/cuda/score_lists_launch.h"

namespace kvtriage {

// W_O of one list's request, [hidden, Hq, dv]; query heads [first_head, first_head + group) are the
// list's.
struct ListProjection {
  DeviceTensor weights;
  uint32_t hidden, first_head, group;
};

struct ProjectArgs {
  const DeviceList* lists;
  const ListProjection* projections;  // [lists]
  const ListPiece* pieces;            // of PieceTokens rows
  float* norms;                       // [rows of all lists]
};

// Which kernel projects a list. Tensor cores take rows of one 16-bit type that lie in aligned
// pieces of 16 bytes, of up to 64 or 128 elements; float32 sums of products take the rest.
enum class ProjectPath : uint8_t { kFloats, kF16By64, kF16By128, kBF16By64, kBF16By128 };
inline constexpr ProjectPath kProjectPaths[] = {ProjectPath::kFloats, ProjectPath::kF16By64,
                                                ProjectPath::kF16By128, ProjectPath::kBF16By64,
                                                ProjectPath::kBF16By128};

inline constexpr uint32_t kTensorThreads = 128;
inline constexpr uint32_t kTensorTokens = 128;  // of a block
inline constexpr uint32_t kTensorRows = 64;     // of W_O that are in shared memory, twice

// Tokens of a block.
inline constexpr uint32_t PieceTokens(ProjectPath path) {
  return path == ProjectPath::kFloats ? kProductTile : kTensorTokens;
}

// `args.pieces` are those of the lists that go by this path.
cudaError_t LaunchProjectValues(ProjectPath path, const ProjectArgs& args, uint32_t pieces,
                                cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_PROJECTED_NORMS_LAUNCH_H_
