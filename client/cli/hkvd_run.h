// HKVD selection on one layer of a blend dump, through the service.
#ifndef KVTRIAGE_CLIENT_CLI_HKVD_RUN_H_
#define KVTRIAGE_CLIENT_CLI_HKVD_RUN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/dump.h"
#include "kvtriage/host_memory.h"
#include "kvtriage/session.h"

namespace kvtriage::cli {

struct HkvdRun {
  uint32_t layer = 0;
  uint64_t rows = 0;                     // N
  std::vector<int32_t> must, hkvd, all;  // all = both, ascending
  double divergence_share = 0;           // sum over hkvd / sum over all reused rows
};

// |reused - fresh| / |fresh| over the keys of all reused rows.
struct KeyDifference {
  double stored = 0, rerotated = 0;
};

// Lends what one metric compares of one layer. Keys are re-rotated to their rows first, in the lent
// copy: rows 0, 1, 2, ... are their new positions.
class LentBlendLayer {
 public:
  static absl::StatusOr<LentBlendLayer> Lend(client::Session& session, const Dump& dump,
                                             const BlendLayer& layer,
                                             client::DivergenceMetric metric);

  // The first `prefix` rows are an exact hit; the suffix is the rows that the reused tensor lacks.
  absl::StatusOr<HkvdRun> Select(client::Session& session, double ratio, uint32_t prefix) const;

  // Of the keys' metric only.
  const std::optional<KeyDifference>& key_difference() const { return key_difference_; }

 private:
  LentBlendLayer(client::HostMemory memory, uint32_t layer, client::DivergenceMetric metric)
      : memory_(std::move(memory)), layer_(layer), metric_(metric) {}
  absl::Status Rerotate(client::Session& session, const Dump& dump, client::Cache cache,
                        uint64_t reused_at, const BlendLayer& layer);

  client::HostMemory memory_;
  uint32_t layer_ = 0;
  client::DivergenceMetric metric_;
  client::TensorSpec fresh_;
  client::RowSource reused_;
  uint32_t reused_rows_ = 0;
  std::optional<KeyDifference> key_difference_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_HKVD_RUN_H_
