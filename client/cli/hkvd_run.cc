#include "client/cli/hkvd_run.h"

#include <utility>

#include "client/cli/dump_tensor_spec.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {
namespace {

constexpr uint64_t kAlignment = 64;

}  // namespace

absl::StatusOr<LentBlendLayer> LentBlendLayer::Lend(client::Session& session, const Dump& dump,
                                                    const BlendLayer& layer) {
  const uint64_t fresh_bytes = layer.fresh_v.entry.bytes, reused_bytes = layer.reused_v.entry.bytes;
  const uint64_t reused_at = (fresh_bytes + kAlignment - 1) / kAlignment * kAlignment;
  KVTRIAGE_ASSIGN_OR_RETURN(client::HostMemory memory,
                            client::HostMemory::Create(reused_at + reused_bytes));
  LentBlendLayer lent(std::move(memory), layer);
  const std::span<std::byte> bytes = lent.memory_.bytes();
  KVTRIAGE_RETURN_IF_ERROR(dump.file().Read(layer.fresh_v.entry, bytes.first(fresh_bytes)));
  KVTRIAGE_RETURN_IF_ERROR(
      dump.file().Read(layer.reused_v.entry, bytes.subspan(reused_at, reused_bytes)));

  client::Registration registration;
  registration.regions.push_back(lent.memory_.Lend(client::Access::kRead));
  KVTRIAGE_ASSIGN_OR_RETURN(const client::Registered registered, session.Register(registration));
  lent.fresh_ = InputSpec(registered.regions.front(), 0, layer.fresh_v, 1);
  lent.reused_ = InputSpec(registered.regions.front(), reused_at, layer.reused_v, 1);
  return lent;
}

absl::StatusOr<HkvdRun> LentBlendLayer::Select(client::Session& session,
                                               client::DivergenceMetric metric, double ratio,
                                               uint32_t prefix) const {
  client::RecomputeRequest request;
  request.fresh = client::DenseRows{fresh_, 0};
  request.cached = client::DenseRows{reused_, 0};
  request.rows = fresh_.rows;
  request.prefix = prefix;
  request.suffix = fresh_.rows - reused_.rows;
  request.metric = metric;
  request.ratio = ratio;
  KVTRIAGE_ASSIGN_OR_RETURN(const client::RecomputeResult result, session.SelectRecompute(request));

  HkvdRun run;
  run.layer = layer_.layer;
  run.rows = fresh_.rows;
  run.all = result.rows;
  for (size_t i = 0; i < result.rows.size(); ++i) {
    (result.is_must[i] ? run.must : run.hkvd).push_back(result.rows[i]);
  }
  run.divergence_share = result.divergence_share;
  return run;
}

}  // namespace kvtriage::cli
