// What goes into and comes out of Session::SelectRecompute: which rows of a glued sequence to
// recompute (HKVD). Row numbers are absolute rows of the whole sequence.
#ifndef KVTRIAGE_CLIENT_RECOMPUTE_H_
#define KVTRIAGE_CLIENT_RECOMPUTE_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kvtriage/cache_description.h"
#include "kvtriage/compress.h"

namespace kvtriage::client {

struct DenseRows {
  TensorSpec tensor;  // row r stands at index r - first_row
  uint32_t first_row = 0;
};
struct PagedRows {  // K or V of a registered cache
  Cache cache;
  uint32_t layer = 0;
  std::vector<int32_t> table;
  uint32_t first_slot = 0;
  bool values = true;  // false: keys
};
using RowSource = std::variant<DenseRows, PagedRows>;

enum class DivergenceMetric {
  kUnspecified = 0,
  kVL2 = 1,
  kKL2 = 2,  // of keys at the same positions: re-rotate the cached ones first
  kVRelative = 3
};

// Gradual filtering: what the check layer before answered. Candidates are only its HKVD rows.
struct PreviousHkvd {
  std::vector<int32_t> hkvd;  // RecomputeResult::hkvd_rows()
  uint32_t base = 0;
};

// Row i of `to` becomes selected row i of `from`: Q, or the residual stream (one head). The same
// heads, elems and type; memory of its own.
struct QueryGather {
  RowSource from;
  TensorSpec to;
};

struct RecomputeRequest {
  RowSource fresh, cached;
  uint32_t rows = 0;                   // of the whole sequence, prefix included
  uint32_t prefix = 0;                 // first rows that are an exact prefix hit: never chosen
  uint32_t suffix = 0;                 // newest rows that must be recomputed
  std::vector<uint8_t> cached_bitmap;  // bit r: row r came from the cache; empty: all did
  std::vector<int32_t> must;           // explicit rows, ascending
  bool no_logits = false;              // do not force the last row
  DivergenceMetric metric = DivergenceMetric::kUnspecified;
  std::optional<double> ratio;  // one of the two
  std::optional<double> threshold;
  std::optional<PreviousHkvd> previous;
  Positions positions = uint64_t{0};  // of all rows, never decreasing
  std::optional<QueryGather> gather;
  std::optional<Group> group;  // ranks that decide together
};

struct RecomputeResult {
  uint64_t job_id = 0;
  bool replayed = false;
  Timing timing;
  std::vector<int32_t> rows;    // must + hkvd, ascending
  std::vector<int32_t> limits;  // per row: number of keys it may see
  std::vector<bool> is_must;    // per row
  uint32_t must = 0, hkvd = 0;
  uint32_t base = 0;  // candidates the ratio refers to
  double gap = 0;     // next divergence / last one chosen
  uint32_t nonfinite_rows = 0;
  double divergence_share = 0;

  std::vector<int32_t> hkvd_rows() const;  // those of `rows` that were chosen by divergence
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_RECOMPUTE_H_
