// A cache dump in memory that is lent to a session: one cache per group of layers with equal
// shapes, so that each group is one Compress call.
#ifndef KVTRIAGE_CLIENT_CLI_LENT_CACHE_H_
#define KVTRIAGE_CLIENT_CLI_LENT_CACHE_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/dump.h"
#include "kvtriage/host_memory.h"
#include "kvtriage/kernels/attention.h"
#include "kvtriage/session.h"

namespace kvtriage::cli {

struct LentLayer {
  CacheLayer shape;
  LayerRows rows;                   // K and V in our own mapping
  TensorView q;                     // the dump's query rows
  std::vector<std::byte> future_q;  // [Hq, F, dk] as in the dump; empty when it has none
};

struct LentGroup {
  client::Cache cache;
  std::vector<LentLayer> layers;
  client::TensorSpec q;
  std::optional<client::TensorSpec> o, lse, column_sums, output_projection;
  std::optional<client::TensorSpec> query_mean, query_covariance;
};

class LentCache {
 public:
  // Reads all tensors of the dump into one sealed memfd and registers it, for reading. The session
  // must outlive the result. Errors name the tensor or come from the service.
  static absl::StatusOr<std::unique_ptr<LentCache>> Lend(client::Session& session,
                                                         const Dump& dump);

  const std::vector<LentGroup>& groups() const { return groups_; }

 private:
  explicit LentCache(client::HostMemory memory) : memory_(std::move(memory)) {}

  client::HostMemory memory_;
  const int32_t block_ = 0;  // every sequence is one block
  std::vector<LentGroup> groups_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_LENT_CACHE_H_
