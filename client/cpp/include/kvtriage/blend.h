// What goes into and comes out of Session::Rerotate and Session::Fuse: keys of reused chunks turned
// to their new positions, and recomputed rows written over the cached ones (CacheBlend).
#ifndef KVTRIAGE_CLIENT_BLEND_H_
#define KVTRIAGE_CLIENT_BLEND_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kvtriage/cache_description.h"
#include "kvtriage/compress.h"

namespace kvtriage::client {

struct RerotateRequest {
  Cache cache;                            // its layers name their ropes
  std::vector<int32_t> layers;            // ascending indexes into CacheSpec::layers; empty: all
  Sequence sequence;                      // `positions`: where all its rows are rotated now
  uint32_t first_row = 0, rows = 0;       // physical rows [first_row, first_row + rows)
  Positions new_positions = uint64_t{0};  // of those rows, in order
  AngleMode angles = AngleMode::kUnspecified;
  // In place; or a copy of those rows (K, V and companions) into rows 0, 1, ... of
  // `sequence.destination`, turned there.
  std::variant<InPlace, CopyTo> act;
};

struct FuseRequest {
  Cache cache;
  std::vector<int32_t> layers;  // ascending; empty: all
  Sequence sequence;
  // Rows to overwrite, ascending: `keys` and `values` hold one row for each, in this order. Empty
  // at a check layer that replaces all rows.
  std::optional<std::vector<int32_t>> rows;
  // Layer axis = layers of the call. Keys are rotated for their place. The cache's element type;
  // memory of its own, not of the cache.
  TensorSpec keys, values;  // no values where V is a part of K's rows
};

// What became of the sequence's rows.
struct RowsOutcome {
  // kDamaged: some rows are half written. After a Fuse the same call with the same tensors repairs
  // them; after a Rerotate in place recompute the sequence, or rebuild its rows from their sources.
  Outcome outcome = Outcome::kUnavailable;
  absl::Status status;       // OK when an answer came; otherwise why none did
  uint32_t kv_revision = 0;  // when applied: send it with the next call
  uint64_t rows = 0;         // turned (Rerotate) or written (Fuse), when an answer came
  uint64_t quarantine = 0;   // as CompressOutcome::quarantine
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_BLEND_H_
