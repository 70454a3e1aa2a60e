#include "client/cli/policy_runs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {
namespace {

client::ScoreInputs Inputs(const LentGroup& group, const Dump& dump, bool column_sums) {
  client::ScoreInputs inputs;
  if (column_sums) {
    inputs.source = client::ColumnSums{*group.column_sums, client::HeadAxis::kQuery};
    return inputs;
  }
  if (group.o) {
    const auto base =
        dump.lse_base() == DumpLseBase::k2 ? client::LseBase::k2 : client::LseBase::kE;
    inputs.source =
        client::QueryOutput{group.q, client::QueryStage::kAfterRope, *group.o, *group.lse, base};
  } else {
    inputs.source = client::QueryWindow{group.q, client::QueryStage::kAfterRope};
  }
  return inputs;
}

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

PolicyRunner::PolicyRunner(client::Session& session, const client::ServerInfo& server,
                           const Dump& dump, const LentCache& lent, bool column_sums)
    : session_(session),
      server_(server),
      dump_(dump),
      lent_(lent),
      column_sums_(column_sums),
      meter_(dump.scale()) {}

const client::Policy* PolicyRunner::Find(const std::string& policy) const {
  for (const client::Policy& known : server_.policies) {
    if (known.name == policy) return &known;
  }
  return nullptr;
}

absl::Status PolicyRunner::Check(const std::string& policy) const {
  const client::Policy* const known = Find(policy);
  if (known == nullptr) {
    const std::string names = absl::StrJoin(
        server_.policies, ", ",
        [](std::string* out, const client::Policy& p) { absl::StrAppend(out, p.name); });
    return absl::InvalidArgumentError(absl::StrCat("--policy: ", policy, " is none of ", names));
  }
  const auto kind =
      known->parts.scorer ? known->parts.scorer->kind : client::Scorer::Kind::kRecency;
  KVTRIAGE_RETURN_IF_ERROR(CheckTensors(policy, kind));
  if (!column_sums_) return absl::OkStatus();
  if (kind != client::Scorer::Kind::kAttention && kind != client::Scorer::Kind::kVatp) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--column-sums: ", policy,
        " does not score by attention sums; only attention and VATP policies can use them"));
  }
  for (const LentGroup& group : lent_.groups()) {
    if (!group.column_sums) {
      return absl::InvalidArgumentError(
          absl::StrCat(dump_.file().path(), ": tensor layers.", group.layers.front().shape.layer,
                       ".colsum_all: missing; --column-sums all needs it"));
    }
  }
  return absl::OkStatus();
}

absl::Status PolicyRunner::CheckTensors(const std::string& policy,
                                        client::Scorer::Kind kind) const {
  using Kind = client::Scorer::Kind;
  for (const LentGroup& group : lent_.groups()) {
    const bool projection = kind == Kind::kCritical && !group.output_projection;
    const bool moments = kind == Kind::kExpectedAttention && !group.query_mean;
    if (!projection && !moments) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(dump_.file().path(), ": tensor layers.", group.layers.front().shape.layer,
                     projection ? ".output_projection: missing; --policy "
                                : ".query_mean: missing; query_mean and query_covariance come "
                                  "together, and --policy ",
                     policy, projection ? " needs it" : " needs them"));
  }
  if (kind != Kind::kExpectedAttention || dump_.rope()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      dump_.file().path(), ": metadata rope_pairing: missing; --policy ", policy, " needs it"));
}

client::CompressRequest PolicyRunner::Request(const LentGroup& group, const std::string& policy,
                                              double keep) const {
  const LentLayer& one = group.layers.front();
  client::CompressRequest request;
  request.cache = group.cache;
  client::Sequence sequence;
  sequence.sequence_id = group.cache.handle;  // a number of our own per group
  sequence.logical_len = sequence.physical_len = one.rows.sequence.rows;
  sequence.table = {0};
  sequence.rows_count = column_sums_ ? 1 : one.q.rows;
  request.sequences.push_back(std::move(sequence));
  request.policy = client::NamedPolicy(policy, keep);
  const client::Policy* const known = Find(policy);
  if (!column_sums_ && known->parts.window && known->parts.window->all) {
    request.policy.parts.window = client::Window{.all = false, .last = one.q.rows};
  }
  request.inputs = Inputs(group, dump_, column_sums_);
  request.inputs.softmax_scale = dump_.scale();
  request.inputs.output_projection = group.output_projection;
  request.inputs.query_mean = group.query_mean;
  request.inputs.query_covariance = group.query_covariance;
  request.act = client::SelectOnly{};
  if (!column_sums_)
    request.measure = {.retained_mass = true, .output_error = true, .oracle_recall = true};
  return request;
}

absl::StatusOr<PolicyRun> PolicyRunner::Run(const std::string& policy, double keep,
                                            const std::string& keep_text) {
  PolicyRun run{policy, keep, keep_text, {}, 0};
  for (const LentGroup& group : lent_.groups()) {
    const client::CompressOutcome outcome = session_.Compress(Request(group, policy, keep));
    if (!outcome.status.ok()) return outcome.status;
    const client::CompressResult& result = *outcome.result;
    run.milliseconds += (result.timing.score + result.timing.select) / 1000.0;
    for (size_t layer = 0; layer < group.layers.size(); ++layer) {
      KVTRIAGE_ASSIGN_OR_RETURN(LayerRun one, LayerOf(group, layer, result));
      run.layers.push_back(std::move(one));
    }
  }
  return run;
}

absl::StatusOr<LayerRun> PolicyRunner::LayerOf(const LentGroup& group, size_t layer,
                                               const client::CompressResult& result) {
  const LentLayer& lent = group.layers[layer];
  LayerRun run;
  run.layer = lent.shape.layer;
  run.rows = lent.rows.sequence.rows;
  for (uint32_t head = 0; head < lent.rows.k.layout.heads; ++head) {
    run.kept.push_back(result.sequences.front().kept_sets.At(static_cast<uint32_t>(layer), head));
  }
  for (const client::Quality& quality : result.quality) {
    if (quality.layer != layer) continue;
    run.retained_mass = Doubles(quality.head_mass_mean);
    run.output_error = Doubles(quality.head_error);
    run.oracle_recall = Doubles(quality.head_recall);
  }
  if (column_sums_) {  // the service saw no queries, but the dump has some
    KVTRIAGE_ASSIGN_OR_RETURN(KeptQuality window, meter_.OnWindow(lent, run.kept));
    run.retained_mass = std::move(window.mass_mean);
    run.output_error = std::move(window.error);
  }
  KVTRIAGE_ASSIGN_OR_RETURN(KeptQuality later, meter_.OnLaterQueries(lent, run.kept));
  run.future_output_error = std::move(later.error);
  return run;
}

}  // namespace kvtriage::cli
