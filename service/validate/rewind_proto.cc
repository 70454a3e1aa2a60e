#include "service/validate/rewind_proto.h"

#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/header_proto.h"

namespace kvtriage {

absl::StatusOr<RewindSpec> ParseRewind(const v1::RewindRequest& request) {
  RewindSpec spec;
  KVTRIAGE_ASSIGN_OR_RETURN(spec.header, ParseHeader(request.has_header(), request.header()));
  if (spec.header.resolve) return spec;
  if (request.sequence_id() == 0) return Invalid("sequence_id", "must not be 0");
  if (request.rows() == 0) return Invalid("rows", "no row to forget");
  spec.sequence_id = request.sequence_id();
  spec.generation = request.generation();
  spec.rows = request.rows();
  return spec;
}

}  // namespace kvtriage
