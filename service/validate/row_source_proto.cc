#include "service/validate/row_source_proto.h"

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/sequence_proto.h"
#include "service/validate/view_proto.h"

namespace kvtriage {
namespace {

absl::Status ReadPaged(const v1::RowSource& source, RowSourceSpec& spec) {
  const v1::RowSource::PagedRows& paged = source.paged();
  if (source.first_row() != 0) return Invalid("first_row", "must be 0 when rows are paged");
  if (paged.cache_id() == 0) return Missing("paged.cache_id");
  spec.cache_id = paged.cache_id();
  spec.layer = paged.layer();
  spec.values = paged.values();
  spec.first_slot = paged.first_slot();
  return ParseTable("paged.table", paged.has_table(), paged.table(), true, spec.table);
}

}  // namespace

absl::StatusOr<TensorSpec> ParseOneLayer(const v1::Tensor& tensor, const RowShape& most) {
  KVTRIAGE_ASSIGN_OR_RETURN(TensorSpec spec, ParseTensor(tensor));
  if (spec.layers != 1) {
    return Error(ErrorReason::kFieldInvalid, "layers", "one check layer at a time")
        .Got(spec.layers)
        .Limit(1);
  }
  if (spec.heads > most.heads) {
    return Error(ErrorReason::kTooMany, "heads", "too many heads")
        .Got(spec.heads)
        .Limit(most.heads);
  }
  if (spec.elems > most.elems) {
    return Error(ErrorReason::kUnsupported, "elems", "rows are too long")
        .Got(spec.elems)
        .Limit(most.elems);
  }
  return spec;
}

absl::Status ParseRowSource(const v1::RowSource& source, bool required, const RowShape& most,
                            RowSourceSpec& spec) {
  switch (source.kind_case()) {
    case v1::RowSource::kTensor: {
      auto tensor = ParseOneLayer(source.tensor(), most);
      if (!tensor.ok()) return UnderField(tensor.status(), "tensor");
      spec.tensor = *tensor;
      spec.first_row = source.first_row();
      return absl::OkStatus();
    }
    case v1::RowSource::kPaged:
      return ReadPaged(source, spec);
    case v1::RowSource::KIND_NOT_SET:
      break;
  }
  return required ? Missing("") : absl::OkStatus();
}

}  // namespace kvtriage
