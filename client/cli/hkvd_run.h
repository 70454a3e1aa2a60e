// HKVD selection on one layer of a blend dump, through the service.
#ifndef KVTRIAGE_CLIENT_CLI_HKVD_RUN_H_
#define KVTRIAGE_CLIENT_CLI_HKVD_RUN_H_

#include <cstdint>
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

// Lends fresh_v and reused_v of one layer, for reading.
class LentBlendLayer {
 public:
  static absl::StatusOr<LentBlendLayer> Lend(client::Session& session, const Dump& dump,
                                             const BlendLayer& layer);

  // The first `prefix` rows are an exact hit; the suffix is the rows that reused_v lacks.
  absl::StatusOr<HkvdRun> Select(client::Session& session, client::DivergenceMetric metric,
                                 double ratio, uint32_t prefix) const;

 private:
  LentBlendLayer(client::HostMemory memory, BlendLayer layer)
      : memory_(std::move(memory)), layer_(std::move(layer)) {}

  client::HostMemory memory_;
  BlendLayer layer_;
  client::TensorSpec fresh_, reused_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_HKVD_RUN_H_
