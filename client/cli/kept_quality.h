// What no request carries: how a kept set does on queries that the service was not given, measured
// here with the service's own kernels on the cache that is still whole.
#ifndef KVTRIAGE_CLIENT_CLI_KEPT_QUALITY_H_
#define KVTRIAGE_CLIENT_CLI_KEPT_QUALITY_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/lent_cache.h"
#include "kvtriage/kernels/backend.h"

namespace kvtriage::cli {

struct KeptQuality {  // one per KV head
  std::vector<double> mass_mean, error;
};

class QualityMeter {
 public:
  explicit QualityMeter(double scale) : scale_(scale), backend_(MakeCpuBackend(0)) {}

  // On the dump's own window rows, each of which sees the rows up to its own.
  absl::StatusOr<KeptQuality> OnWindow(const LentLayer& layer,
                                       const std::vector<std::vector<int32_t>>& kept);
  // On later queries, each of which sees all rows. Empty when the dump has none.
  absl::StatusOr<KeptQuality> OnLaterQueries(const LentLayer& layer,
                                             const std::vector<std::vector<int32_t>>& kept);

 private:
  absl::StatusOr<KeptQuality> Measure(const LentLayer& layer,
                                      const std::vector<std::vector<int32_t>>& kept,
                                      const TensorView& q, std::span<const int32_t> limits);

  const double scale_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_KEPT_QUALITY_H_
