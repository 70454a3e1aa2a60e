// What checked calls of the BlendService want.
#ifndef KVTRIAGE_SERVICE_POLICY_BLEND_SPEC_H_
#define KVTRIAGE_SERVICE_POLICY_BLEND_SPEC_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kvtriage/kernels/divergence.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// Rows of K or V, dense or paged.
struct RowSourceSpec {
  std::optional<TensorSpec> tensor;
  uint32_t first_row = 0;
  uint64_t cache_id = 0;  // paged
  uint32_t layer = 0;
  bool values = true;  // else keys
  uint32_t first_slot = 0;
  std::vector<int32_t> table;
};

// The answer of the check layer before.
struct PreviousHkvd {
  std::vector<int32_t> hkvd;  // ascending
  uint32_t base = 0;
};

// Copies the selected rows of `from` to rows 0, 1, ... of `to`.
struct QueryGatherSpec {
  RowSourceSpec from;
  TensorSpec to;
};

struct SelectRecomputeSpec {
  RequestHeader header;
  RowSourceSpec fresh, cached;
  uint32_t rows = 0;  // N
  uint32_t prefix = 0;
  uint32_t suffix = 0;
  std::vector<uint8_t> cached_bitmap;  // empty = all rows came from the cache
  std::vector<int32_t> must;           // ascending, none inside the prefix
  bool no_logits = false;
  DivergenceMetric metric = DivergenceMetric::kL2;
  std::optional<double> ratio, threshold;  // exactly one
  std::optional<PreviousHkvd> previous;
  std::optional<uint64_t> first_position;  // or
  std::vector<int32_t> positions;          // one per row, never decreasing
  std::optional<QueryGatherSpec> gather;
  std::optional<GroupSpec> group;
};

struct RerotateSpec {
  RequestHeader header;
  uint64_t cache_id = 0;
  std::vector<uint32_t> layers;      // ascending; empty = all
  SequenceSpec sequence;             // with positions, unless it has no rows
  uint32_t first_row = 0, rows = 0;  // inside the sequence
  PositionsSpec new_positions;       // of those rows
  AngleMode angles = AngleMode::kExact;
  ActSpec act;  // copy or in place
};

struct FuseSpec {
  RequestHeader header;
  uint64_t cache_id = 0;
  std::vector<uint32_t> layers;  // ascending; empty = all
  SequenceSpec sequence;
  bool full = false;                       // all rows, and no list
  std::vector<int32_t> rows;               // ascending, inside the sequence
  std::optional<TensorSpec> keys, values;  // rows in that order; absent only when there are none
  uint32_t ledger_slot = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_BLEND_SPEC_H_
