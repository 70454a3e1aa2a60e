#include "client/cli/hkvd_run.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/dump_tensor_spec.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kSequenceId = 1;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Over the rows that both have.
double RelativeDifference(const std::byte* reused_at, const DumpTensor& reused,
                          const std::byte* fresh_at, const DumpTensor& fresh) {
  const TensorView a = QueryView(reused_at, reused), b = QueryView(fresh_at, fresh);
  double off = 0, all = 0;
  for (uint32_t h = 0; h < a.heads; ++h) {
    for (uint32_t p = 0; p < a.rows; ++p) {
      for (uint32_t e = 0; e < a.elems; ++e) {
        const double was = LoadElement(a.At(p, h, e), a.dtype);
        const double is = LoadElement(b.At(p, h, e), b.dtype);
        off += (was - is) * (was - is);
        all += is * is;
      }
    }
  }
  return all > 0 ? std::sqrt(off / all) : 0;
}

client::CacheSpec KeyCache(const DumpTensor& keys, const DumpRope& rope, uint64_t at) {
  client::CacheSpec cache;
  client::RopeSpec& spec = cache.ropes.emplace_back();
  spec.pairing = rope.pairing;
  spec.rotary_dim = static_cast<uint32_t>(keys.elems());
  spec.speeds = client::ThetaSpeeds{rope.theta, {}};
  client::LayerSpec layer;
  layer.kv_heads = layer.q_heads = static_cast<uint32_t>(keys.heads());
  layer.rope_index = 1;
  const auto view = [&](uint64_t offset) {
    return client::ContiguousView(client::Region::OfThisCall(0), offset, layer.kv_heads,
                                  static_cast<uint32_t>(keys.rows()),
                                  static_cast<uint32_t>(keys.elems()), ClientType(keys.dtype));
  };
  layer.k = view(at);
  layer.v = view(at + Aligned(keys.entry.bytes));  // every layer has V; nobody reads this one
  cache.layers.push_back(layer);
  cache.num_layers = 1;
  return cache;
}

}  // namespace

absl::StatusOr<LentBlendLayer> LentBlendLayer::Lend(client::Session& session, const Dump& dump,
                                                    const BlendLayer& layer,
                                                    client::DivergenceMetric metric) {
  const bool keys = metric == client::DivergenceMetric::kKL2;
  if (keys && !(layer.fresh_k && layer.reused_k)) {
    return absl::InvalidArgumentError(
        absl::StrCat(dump.file().path(), ": tensor layers.", layer.layer,
                     layer.fresh_k ? ".reused_k" : ".fresh_k", ": missing; --metric k needs it"));
  }
  const DumpTensor& fresh = keys ? *layer.fresh_k : layer.fresh_v;
  const DumpTensor& reused = keys ? *layer.reused_k : layer.reused_v;
  const uint64_t reused_at = Aligned(fresh.entry.bytes);
  const uint64_t end = reused_at + Aligned(reused.entry.bytes) + (keys ? reused.entry.bytes : 0);
  KVTRIAGE_ASSIGN_OR_RETURN(client::HostMemory memory, client::HostMemory::Create(end));
  LentBlendLayer lent(std::move(memory), layer.layer, metric);
  const std::span<std::byte> bytes = lent.memory_.bytes();
  KVTRIAGE_RETURN_IF_ERROR(dump.file().Read(fresh.entry, bytes.first(fresh.entry.bytes)));
  KVTRIAGE_RETURN_IF_ERROR(
      dump.file().Read(reused.entry, bytes.subspan(reused_at, reused.entry.bytes)));

  client::Registration registration;
  registration.regions.push_back(
      lent.memory_.Lend(keys ? client::Access::kReadWrite : client::Access::kRead));
  if (keys) {
    KVTRIAGE_ASSIGN_OR_RETURN(const DumpRope rope, dump.Rope());
    registration.caches.push_back(KeyCache(reused, rope, reused_at));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(const client::Registered registered, session.Register(registration));
  lent.fresh_ = InputSpec(registered.regions.front(), 0, fresh, 1);
  lent.reused_rows_ = static_cast<uint32_t>(reused.rows());
  if (keys) {
    lent.reused_ = client::PagedRows{registered.caches.front(), 0, {0}, 0, /*values=*/false};
    KVTRIAGE_RETURN_IF_ERROR(
        lent.Rerotate(session, dump, registered.caches.front(), reused_at, layer));
  } else {
    const client::Region region = registered.regions.front();
    lent.reused_ = client::DenseRows{InputSpec(region, reused_at, reused, 1), 0};
  }
  return lent;
}

absl::Status LentBlendLayer::Rerotate(client::Session& session, const Dump& dump,
                                      client::Cache cache, uint64_t reused_at,
                                      const BlendLayer& layer) {
  const std::byte* const bytes = memory_.bytes().data();
  const auto difference = [&] {
    return RelativeDifference(bytes + reused_at, *layer.reused_k, bytes, *layer.fresh_k);
  };
  KeyDifference& keys = key_difference_.emplace();
  keys.stored = difference();
  client::RerotateRequest request;
  request.cache = cache;
  request.sequence.sequence_id = kSequenceId;
  request.sequence.logical_len = request.sequence.physical_len = reused_rows_;
  request.sequence.table = {0};
  request.sequence.sharing = client::Sharing::kAllPrivate;
  KVTRIAGE_ASSIGN_OR_RETURN(request.sequence.positions, dump.OldPositions(reused_rows_));
  request.rows = reused_rows_;
  request.new_positions = uint64_t{0};
  request.angles = client::AngleMode::kExact;
  const client::RowsOutcome outcome = session.Rerotate(request);
  if (outcome.outcome != client::Outcome::kApplied) return outcome.status;
  keys.rerotated = difference();
  return absl::OkStatus();
}

absl::StatusOr<HkvdRun> LentBlendLayer::Select(client::Session& session, double ratio,
                                               uint32_t prefix) const {
  client::RecomputeRequest request;
  request.fresh = client::DenseRows{fresh_, 0};
  request.cached = reused_;
  request.rows = fresh_.rows;
  request.prefix = prefix;
  request.suffix = fresh_.rows - reused_rows_;
  request.metric = metric_;
  request.ratio = ratio;
  KVTRIAGE_ASSIGN_OR_RETURN(const client::RecomputeResult result, session.SelectRecompute(request));

  HkvdRun run;
  run.layer = layer_;
  run.rows = fresh_.rows;
  run.all = result.rows;
  for (size_t i = 0; i < result.rows.size(); ++i) {
    (result.is_must[i] ? run.must : run.hkvd).push_back(result.rows[i]);
  }
  run.divergence_share = result.divergence_share;
  return run;
}

}  // namespace kvtriage::cli
