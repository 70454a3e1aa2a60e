// What one (policy, keep ratio) run over a dump found out; the table, the JSON and the report show
// it.
#ifndef KVTRIAGE_CLIENT_CLI_RUN_RESULT_H_
#define KVTRIAGE_CLIENT_CLI_RUN_RESULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvtriage::cli {

struct LayerRun {
  uint32_t layer = 0;                      // the model's layer number
  uint64_t rows = 0;                       // N
  std::vector<std::vector<int32_t>> kept;  // one list per KV head, also when heads share a set
  // One per KV head; empty where not measured. Errors are pooled over the group's rows.
  std::vector<double> retained_mass, output_error, future_output_error, oracle_recall;
};

struct PolicyRun {
  std::string policy;     // as given
  double keep = 0;        // as given
  std::string keep_text;  // the user's own spelling, for output
  std::vector<LayerRun> layers;
  double milliseconds = 0;
};

// Figures over all layers and KV heads; nothing where no layer was measured.
struct RunSummary {
  std::optional<double> mass_mean, error_mean, error_p95, future_mean, future_p95, recall_mean;
};

RunSummary Summarise(const PolicyRun& run);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_RUN_RESULT_H_
