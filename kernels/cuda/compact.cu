#include "kernels/cuda/compact.cuh"
#include "kernels/cuda/launch.h"

namespace kvtriage {

cudaError_t LaunchCompact(const CompactArgs& args, uint32_t word_bytes, uint32_t blocks,
                          cudaStream_t stream) {
  LaunchShape shape;
  shape.blocks_x = blocks;
  shape.threads = kCompactThreads;
  shape.shared_bytes = CompactSharedBytes(args.tile_rows, size_t{args.row_words} * word_bytes);
  switch (word_bytes) {
    case 16:
      return LaunchKernel(CompactRows<simt::Vec16>, shape, stream, args);
    case 8:
      return LaunchKernel(CompactRows<simt::Vec8>, shape, stream, args);
    case 4:
      return LaunchKernel(CompactRows<uint32_t>, shape, stream, args);
    case 2:
      return LaunchKernel(CompactRows<uint16_t>, shape, stream, args);
    default:
      return LaunchKernel(CompactRows<uint8_t>, shape, stream, args);
  }
}

}  // namespace kvtriage
