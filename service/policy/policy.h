// What a caller wants kept, in named parts, after a policy name was expanded and checked. Plain
// values: no protobuf, no engine state.
#ifndef KVTRIAGE_SERVICE_POLICY_POLICY_H_
#define KVTRIAGE_SERVICE_POLICY_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Which query rows vote.
struct Window {
  bool all = false;
  uint32_t last = 0;  // >= 1 when not `all`; clipped to the rows given and to N
  // `all`, running sums only: what earlier rows have added is multiplied with it at every row that
  // follows. In (0, 1].
  double decay = 1;

  friend bool operator==(const Window&, const Window&) = default;
};

// Rows kept whatever their score: an explicit set, never a large score. Explicit rows travel with
// the sequence.
struct Protect {
  uint32_t sinks = 0;       // rows 0 .. sinks-1
  uint32_t recent = 0;      // newest rows
  double recent_share = 0;  // 0..1 of the budget; the larger of the two counts

  friend bool operator==(const Protect&, const Protect&) = default;
};

// How many rows stay, protected ones included. Exactly one of the two amounts and the two lists of
// counts is set. Counts are >= 1; those per layer or head take the place of the amount there.
struct Budget {
  std::optional<uint32_t> kept_tokens;  // >= 1
  std::optional<double> kept_ratio;     // 0 < r <= 1, the share KEPT
  std::optional<double>
      adaptive_alpha;  // set: shared adaptively across the heads of a layer (AdaKV)
  std::optional<uint32_t> pyramid_beta;   // set: shared across the layers of the model (PyramidKV)
  std::vector<uint32_t> explicit_layers;  // one per layer of the call
  std::vector<uint32_t> explicit_heads;   // one per (layer of the call, KV head)

  bool has_counts() const { return !explicit_layers.empty() || !explicit_heads.empty(); }

  friend bool operator==(const Budget&, const Budget&) = default;
};

enum class Granularity : uint8_t { kPerHead, kPerLayer, kPerSequence };

// A part that the scorer cannot use is absent.
struct PolicySpec {
  std::string name;  // as the caller named it ("snapkv+obc-joint"); empty for hand-made parts
  ScoreSpec score;   // reduce and pool are kSum / kNone where the scorer cannot use them
  bool has_window = false, has_reduce = false, has_pool = false;
  Window window;
  Protect protect;
  Budget budget;
  Granularity granularity = Granularity::kPerHead;

  friend bool operator==(const PolicySpec&, const PolicySpec&) = default;
};

// Whether it reduces over the query heads of a KV head.
bool UsesReduce(Scorer scorer);

// Whether its score is a sum over query rows (for kVatp: up to a factor of the row's own), so that
// rows can be added as they come.
bool AddsUp(Scorer scorer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_POLICY_H_
