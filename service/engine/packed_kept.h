// Kept sets as answers carry them that do not list row numbers.
#ifndef KVTRIAGE_SERVICE_ENGINE_PACKED_KEPT_H_
#define KVTRIAGE_SERVICE_ENGINE_PACKED_KEPT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "service/policy/compress_spec.h"

namespace kvtriage {

struct PackedKept {
  std::vector<int32_t> counts;  // rows per list
  // kBitmap: bit p of a list is row p, lowest bit first, CeilDiv(rows, 8) bytes per list, lists
  // back to back. Else empty.
  std::string bitmaps;
};

// `lists` are row numbers below `rows`; `format` is not kIndices.
PackedKept Pack(std::span<const std::vector<int32_t>> lists, uint64_t rows, KeptFormat format);

// Bytes that `lists` take in an answer: counts, and rows in that format.
uint64_t KeptBytes(std::span<const std::vector<int32_t>> lists, uint64_t rows, KeptFormat format);
// The same of `lists` lists with `kept` rows together.
uint64_t KeptBytes(uint64_t lists, uint64_t kept, uint64_t rows, KeptFormat format);

struct CompressAnswer;
// Once nothing but the answer needs the lists any more: formats that are smaller take their place,
// so that a stored answer costs no more than the message. kIndices stays as it is.
void PackKept(CompressAnswer& answer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PACKED_KEPT_H_
