// Runs policies over a lent cache: one select-only Compress per policy, keep ratio and layer group,
// with everything measured.
#ifndef KVTRIAGE_CLIENT_CLI_POLICY_RUNS_H_
#define KVTRIAGE_CLIENT_CLI_POLICY_RUNS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/dump.h"
#include "client/cli/kept_quality.h"
#include "client/cli/lent_cache.h"
#include "client/cli/run_result.h"
#include "kvtriage/session.h"

namespace kvtriage::cli {

class PolicyRunner {
 public:
  // Everything given must outlive the runner.
  PolicyRunner(client::Session& session, const client::ServerInfo& server, const Dump& dump,
               const LentCache& lent, bool column_sums);

  // Whether the service knows the policy, whether the dump has the tensors that its scorer reads,
  // and, with column sums, whether the policy can use them (its scorer is attention or VATP) and
  // the dump has them.
  absl::Status Check(const std::string& policy) const;

  // Scores come from the dump's own query rows, so a policy that wants all rows (h2o, vatp) gets
  // those; with column sums from `colsum_all`. Errors are the service's.
  absl::StatusOr<PolicyRun> Run(const std::string& policy, double keep,
                                const std::string& keep_text);

 private:
  const client::Policy* Find(const std::string& policy) const;
  absl::Status CheckTensors(const std::string& policy, client::Scorer::Kind kind) const;
  client::CompressRequest Request(const LentGroup& group, const std::string& policy,
                                  double keep) const;
  absl::StatusOr<LayerRun> LayerOf(const LentGroup& group, size_t layer,
                                   const client::CompressResult& result);

  client::Session& session_;
  const client::ServerInfo& server_;
  const Dump& dump_;
  const LentCache& lent_;
  const bool column_sums_;
  QualityMeter meter_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_POLICY_RUNS_H_
