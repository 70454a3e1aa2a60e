#include "service/policy/compress_spec.h"

namespace kvtriage {

bool SequenceSpec::IsShared(uint64_t index) const {
  switch (sharing) {
    case Sharing::kAllPrivate:
      return false;
    case Sharing::kPrefix:
      return index < shared_blocks;
    case Sharing::kBitmap:
      // What the bitmap does not cover must not be written either.
      return index / 8 >= shared_bitmap.size() ||
             (shared_bitmap[index / 8] >> (index % 8) & 1) != 0;
    case Sharing::kUnspecified:
    case Sharing::kUnknown:
      return true;
  }
  return true;
}

}  // namespace kvtriage
