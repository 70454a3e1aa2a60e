#include "service/validate/recompute_proto.h"

#include <cmath>
#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/group_proto.h"
#include "service/validate/header_proto.h"
#include "service/validate/limits.h"
#include "service/validate/row_source_proto.h"

namespace kvtriage {
namespace {

// Tensors of one check layer, of a size that views may have.
constexpr RowShape kCacheRows{kMaxKvHeads, kMaxHeadSize};
// Queries, or residuals: one head of hidden size.
constexpr RowShape kQueryRows{kMaxQueryHeads, kMaxHiddenSize};

absl::Status CheckSameShape(const SelectRecomputeSpec& spec) {
  if (!spec.fresh.tensor || !spec.cached.tensor) return absl::OkStatus();
  if (spec.fresh.tensor->heads != spec.cached.tensor->heads) {
    return Error(ErrorReason::kGeometryInvalid, "cached.tensor.heads", "differs from fresh")
        .Got(spec.cached.tensor->heads)
        .Limit(spec.fresh.tensor->heads);
  }
  if (spec.fresh.tensor->elems != spec.cached.tensor->elems) {
    return Error(ErrorReason::kGeometryInvalid, "cached.tensor.elems", "differs from fresh")
        .Got(spec.cached.tensor->elems)
        .Limit(spec.fresh.tensor->elems);
  }
  return absl::OkStatus();
}

absl::Status ReadRowClasses(const v1::SelectRecomputeRequest& request, SelectRecomputeSpec& spec) {
  if (request.rows() > kMaxRowsPerSequence) {
    return Error(ErrorReason::kTooMany, "rows", "too many rows")
        .Got(request.rows())
        .Limit(kMaxRowsPerSequence);
  }
  if (request.prefix() > request.rows()) {
    return Error(ErrorReason::kFieldInvalid, "prefix", "longer than the sequence")
        .Got(request.prefix())
        .Limit(request.rows());
  }
  const std::string& bitmap = request.cached_bitmap();
  if (!bitmap.empty() && bitmap.size() != CeilDiv(request.rows(), 8)) {
    return Error(ErrorReason::kFieldInvalid, "cached_bitmap", "needs one bit per row")
        .Got(bitmap.size())
        .Limit(CeilDiv(request.rows(), 8));
  }
  KVTRIAGE_RETURN_IF_ERROR(
      ReadInt32s("must_le", request.must_le(), kMaxRowsPerSequence, spec.must));
  KVTRIAGE_RETURN_IF_ERROR(CheckRowList("must_le", spec.must, request.rows()));
  if (!spec.must.empty() && static_cast<uint32_t>(spec.must.front()) < request.prefix()) {
    return Error(ErrorReason::kIndexInvalid, "must_le", "row inside the prefix")
        .Index(0)
        .Got(static_cast<uint32_t>(spec.must.front()))
        .Limit(request.prefix());
  }
  spec.rows = request.rows();
  spec.prefix = request.prefix();
  spec.suffix = request.suffix();
  spec.no_logits = request.no_logits();
  spec.cached_bitmap.assign(bitmap.begin(), bitmap.end());
  return absl::OkStatus();
}

absl::Status ReadMetric(v1::DivergenceMetric metric, SelectRecomputeSpec& spec) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("metric", metric, v1::DivergenceMetric_IsValid));
  spec.metric = metric == v1::DIVERGENCE_METRIC_V_RELATIVE ? DivergenceMetric::kRelative
                                                           : DivergenceMetric::kL2;
  return absl::OkStatus();
}

// A metric of keys reads keys, one of values values; of a tensor only the caller knows.
absl::Status CheckMetricSource(v1::DivergenceMetric metric, const RowSourceSpec& source,
                               const std::string& field) {
  const bool values = metric != v1::DIVERGENCE_METRIC_K_L2;
  if (source.tensor || source.cache_id == 0 || source.values == values) return absl::OkStatus();
  return Invalid(field + ".paged.values", "not what the metric compares");
}

absl::Status ReadPrevious(const v1::SelectRecomputeRequest& request, SelectRecomputeSpec& spec) {
  if (!request.has_previous()) return absl::OkStatus();
  const auto& previous = request.previous();
  PreviousHkvd& out = spec.previous.emplace();
  KVTRIAGE_RETURN_IF_ERROR(
      ReadInt32s("previous.hkvd_le", previous.hkvd_le(), kMaxRowsPerSequence, out.hkvd));
  KVTRIAGE_RETURN_IF_ERROR(CheckRowList("previous.hkvd_le", out.hkvd, spec.rows));
  if (!out.hkvd.empty() && static_cast<uint32_t>(out.hkvd.front()) < spec.prefix) {
    return Error(ErrorReason::kIndexInvalid, "previous.hkvd_le", "row inside the prefix")
        .Index(0)
        .Got(static_cast<uint32_t>(out.hkvd.front()))
        .Limit(spec.prefix);
  }
  if (previous.base() < out.hkvd.size() || previous.base() > spec.rows) {
    return Error(ErrorReason::kFieldInvalid, "previous.base",
                 "fewer than the rows chosen of it, or more than the sequence has")
        .Got(previous.base())
        .Limit(spec.rows);
  }
  out.base = previous.base();
  return absl::OkStatus();
}

absl::Status ReadGather(const v1::SelectRecomputeRequest& request, SelectRecomputeSpec& spec) {
  if (!request.has_gather()) return absl::OkStatus();
  QueryGatherSpec& gather = spec.gather.emplace();
  auto from = ParseRowSource(request.gather().from(), spec.rows > 0, kQueryRows, gather.from);
  if (!from.ok()) return UnderField(from, "gather.from");
  if (!request.gather().has_to()) return Missing("gather.to");
  auto to = ParseOneLayer(request.gather().to(), kQueryRows);
  if (!to.ok()) return UnderField(to.status(), "gather.to");
  gather.to = *to;
  return absl::OkStatus();
}

absl::Status ReadAmount(const v1::SelectRecomputeRequest& request, SelectRecomputeSpec& spec) {
  switch (request.amount_case()) {
    case v1::SelectRecomputeRequest::kRatio:
      if (!(request.ratio() >= 0.0 && request.ratio() <= 1.0)) {
        return Invalid("ratio", "outside 0..1");
      }
      spec.ratio = request.ratio();
      return absl::OkStatus();
    case v1::SelectRecomputeRequest::kThreshold:
      if (!(request.threshold() >= 0.0 && std::isfinite(request.threshold()))) {
        return Invalid("threshold", "must be finite and not negative");
      }
      spec.threshold = request.threshold();
      return absl::OkStatus();
    case v1::SelectRecomputeRequest::AMOUNT_NOT_SET:
      break;
  }
  return Missing("ratio");
}

absl::Status ReadPositionList(const v1::Int32Array& list, SelectRecomputeSpec& spec) {
  KVTRIAGE_RETURN_IF_ERROR(
      ReadInt32s("positions.list", list.inline_le(), kMaxRowsPerSequence, spec.positions));
  if (spec.positions.size() != spec.rows) {
    return Error(ErrorReason::kFieldInvalid, "positions.list", "needs one position per row")
        .Got(spec.positions.size())
        .Limit(spec.rows);
  }
  for (size_t i = 0; i < spec.positions.size(); ++i) {
    if (spec.positions[i] < 0) {
      return Error(ErrorReason::kFieldInvalid, "positions.list", "negative position").Index(i);
    }
    if (i > 0 && spec.positions[i] < spec.positions[i - 1]) {
      return Error(ErrorReason::kIndexInvalid, "positions.list", "positions decrease")
          .Index(i)
          .Got(static_cast<uint64_t>(spec.positions[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPositions(const v1::Positions& positions, SelectRecomputeSpec& spec) {
  switch (positions.kind_case()) {
    case v1::Positions::kFirstPosition:
      if (!CheckedAdd(positions.first_position(), spec.rows)) {
        return Error(ErrorReason::kFieldInvalid, "positions.first_position", "positions wrap")
            .Got(positions.first_position());
      }
      spec.first_position = positions.first_position();
      return absl::OkStatus();
    case v1::Positions::kList:
      return ReadPositionList(positions.list(), spec);
    case v1::Positions::KIND_NOT_SET:
      break;
  }
  return Missing("positions");
}

}  // namespace

absl::StatusOr<SelectRecomputeSpec> ParseSelectRecompute(
    const v1::SelectRecomputeRequest& request) {
  SelectRecomputeSpec spec;
  KVTRIAGE_ASSIGN_OR_RETURN(spec.header, ParseHeader(request.has_header(), request.header()));
  if (spec.header.resolve) return spec;
  KVTRIAGE_RETURN_IF_ERROR(ReadRowClasses(request, spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadMetric(request.metric(), spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadAmount(request, spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadPositions(request.positions(), spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadPrevious(request, spec));
  const bool needed = spec.rows > 0;
  if (auto status = ParseRowSource(request.fresh(), needed, kCacheRows, spec.fresh); !status.ok()) {
    return UnderField(status, "fresh");
  }
  if (auto status = ParseRowSource(request.cached(), needed, kCacheRows, spec.cached);
      !status.ok()) {
    return UnderField(status, "cached");
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckMetricSource(request.metric(), spec.fresh, "fresh"));
  KVTRIAGE_RETURN_IF_ERROR(CheckMetricSource(request.metric(), spec.cached, "cached"));
  KVTRIAGE_RETURN_IF_ERROR(CheckSameShape(spec));
  KVTRIAGE_RETURN_IF_ERROR(ReadGather(request, spec));
  KVTRIAGE_RETURN_IF_ERROR(ParseGroup(request.has_group(), request.group(), spec.group));
  return spec;
}

}  // namespace kvtriage
