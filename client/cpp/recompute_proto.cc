#include "client/cpp/recompute_proto.h"

#include <utility>

#include "client/cpp/cache_to_proto.h"
#include "client/cpp/compress_from_proto.h"
#include "client/cpp/group_to_proto.h"
#include "client/cpp/int32_bytes.h"
#include "client/cpp/local_error.h"
#include "client/cpp/sequence_to_proto.h"

namespace kvtriage::client {
namespace {

static_assert(static_cast<int>(DivergenceMetric::kVL2) == v1::DIVERGENCE_METRIC_V_L2);
static_assert(static_cast<int>(DivergenceMetric::kKL2) == v1::DIVERGENCE_METRIC_K_L2);
static_assert(static_cast<int>(DivergenceMetric::kVRelative) == v1::DIVERGENCE_METRIC_V_RELATIVE);

v1::RowSource ToProto(const RowSource& source, const MemoryIds& ids) {
  v1::RowSource out;
  if (const auto* const dense = std::get_if<DenseRows>(&source)) {
    *out.mutable_tensor() = ToProto(dense->tensor, ids);
    out.set_first_row(dense->first_row);
    return out;
  }
  const auto& paged = std::get<PagedRows>(source);
  v1::RowSource::PagedRows* const to = out.mutable_paged();
  to->set_cache_id(ids.IdOf(paged.cache));
  to->set_layer(paged.layer);
  to->set_values(paged.values);
  to->mutable_table()->set_inline_le(ToBytes(paged.table));
  to->set_first_slot(paged.first_slot);
  return out;
}

}  // namespace

v1::SelectRecomputeRequest ToProto(const RecomputeRequest& request, const MemoryIds& ids) {
  v1::SelectRecomputeRequest out;
  *out.mutable_fresh() = ToProto(request.fresh, ids);
  *out.mutable_cached() = ToProto(request.cached, ids);
  out.set_rows(request.rows);
  out.set_prefix(request.prefix);
  out.set_cached_bitmap(request.cached_bitmap.data(), request.cached_bitmap.size());
  out.set_suffix(request.suffix);
  out.set_must_le(ToBytes(request.must));
  out.set_no_logits(request.no_logits);
  out.set_metric(static_cast<v1::DivergenceMetric>(request.metric));
  if (request.ratio.has_value()) out.set_ratio(*request.ratio);
  if (request.threshold.has_value()) out.set_threshold(*request.threshold);
  if (request.previous.has_value()) {
    out.mutable_previous()->set_hkvd_le(ToBytes(request.previous->hkvd));
    out.mutable_previous()->set_base(request.previous->base);
  }
  *out.mutable_positions() = ToProto(request.positions);
  if (request.gather.has_value()) {
    *out.mutable_gather()->mutable_from() = ToProto(request.gather->from, ids);
    *out.mutable_gather()->mutable_to() = ToProto(request.gather->to, ids);
  }
  if (request.group.has_value()) *out.mutable_group() = ToProto(*request.group);
  return out;
}

std::vector<int32_t> RecomputeResult::hkvd_rows() const {
  std::vector<int32_t> chosen;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!is_must[i]) chosen.push_back(rows[i]);
  }
  return chosen;
}

absl::StatusOr<RecomputeResult> FromProto(const v1::SelectRecomputeResponse& response) {
  RecomputeResult out;
  auto rows = FromBytes(response.rows_le());
  auto limits = FromBytes(response.limits_le());
  if (!rows || !limits || rows->size() != limits->size() ||
      rows->size() != size_t{response.must()} + response.hkvd()) {
    return LocalError(absl::StatusCode::kInternal, "bad_answer",
                      "rows, limits and counts do not agree");
  }
  out.rows = std::move(*rows);
  out.limits = std::move(*limits);
  for (size_t i = 0; i < out.rows.size(); ++i)
    out.is_must.push_back(BitAt(response.is_must_bitmap(), i));
  out.job_id = response.header().job_id();
  out.replayed = response.header().replayed();
  out.timing = FromProto(response.header().timing());
  out.must = response.must();
  out.hkvd = response.hkvd();
  out.base = response.base();
  out.gap = response.gap();
  out.nonfinite_rows = response.nonfinite_rows();
  out.divergence_share = response.divergence_share();
  return out;
}

}  // namespace kvtriage::client
