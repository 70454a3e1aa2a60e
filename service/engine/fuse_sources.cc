#include "service/engine/fuse_sources.h"

#include <algorithm>
#include <string>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/dense_view.h"
#include "service/engine/placed_layout.h"
#include "service/engine/plan_tensor.h"

namespace kvtriage {
namespace {

constexpr std::string_view kKeys = "keys", kValues = "values";

absl::Status CheckEqual(std::string_view field, const char* name, size_t layer, uint64_t got,
                        uint64_t want) {
  if (got == want) return absl::OkStatus();
  return Error(ErrorReason::kGeometryInvalid, std::string(field) + "." + name,
               "differs from the cache's; index = layer of the call")
      .Index(layer)
      .Got(got)
      .Limit(want);
}

absl::Status CheckShape(const TensorSpec& tensor, const KvView& view, size_t layer,
                        std::string_view field) {
  const ViewLayout& layout = view.layout;
  if (layout.opaque()) {
    return Error(ErrorReason::kUnsupported, field, "rows of unknown encoding cannot be fused")
        .Index(layer);
  }
  if (view.scales.base != nullptr) {
    return Error(ErrorReason::kUnsupported, field, "rows with a scale each cannot be fused")
        .Index(layer);
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckEqual(field, "heads", layer, tensor.heads, layout.heads));
  KVTRIAGE_RETURN_IF_ERROR(CheckEqual(field, "elems", layer, tensor.elems, layout.row_elems));
  return CheckEqual(field, "dtype", layer, static_cast<uint64_t>(tensor.dtype),
                    static_cast<uint64_t>(layout.dtype));
}

class Resolver {
 public:
  Resolver(SessionMemory& memory, const FuseSpec& spec, CompressPlan& plan)
      : memory_(memory), spec_(spec), plan_(plan) {}

  absl::StatusOr<std::vector<RowCopy>> Resolve() {
    KVTRIAGE_RETURN_IF_ERROR(Add(kKeys, *spec_.keys));
    const std::vector<PlanLayer>& layers = plan_.cache.layers;
    const auto sliced = std::count_if(layers.begin(), layers.end(),
                                      [](const PlanLayer& layer) { return layer.v_in_k; });
    if (sliced != 0 && static_cast<size_t>(sliced) != layers.size()) {
      return absl::Status(Error(ErrorReason::kGeometryInvalid, kValues,
                                "some layers have V inside K and some do not: fuse them apart"));
    }
    if (sliced != 0) {
      if (spec_.values) {
        return absl::Status(
            Error(ErrorReason::kFieldInvalid, kValues, "V is a part of K and comes with it"));
      }
      return std::move(copies_);
    }
    if (!spec_.values) {
      return absl::Status(Error(ErrorReason::kFieldMissing, kValues, "V has rows of its own"));
    }
    KVTRIAGE_RETURN_IF_ERROR(Add(kValues, *spec_.values));
    return std::move(copies_);
  }

 private:
  absl::Status Add(std::string_view field, const TensorSpec& tensor) {
    const std::vector<PlanLayer>& layers = plan_.cache.layers;
    if (tensor.layers != layers.size()) {
      return Error(ErrorReason::kGeometryInvalid, std::string(field) + ".layers",
                   "not the number of layers in the call")
          .Got(tensor.layers)
          .Limit(layers.size());
    }
    KVTRIAGE_ASSIGN_OR_RETURN(const ResolvedTensor from,
                              ResolveTensor(memory_, tensor, field, plan_.pins));
    KVTRIAGE_RETURN_IF_ERROR(CheckTensorApart(memory_, plan_.cache, tensor, field, plan_.pins));
    const PlanSequence& sequence = plan_.sequences.front();
    for (size_t l = 0; l < layers.size(); ++l) {
      const KvView& to = field == kKeys ? layers[l].k : layers[l].v;
      KVTRIAGE_RETURN_IF_ERROR(CheckShape(tensor, to, l, field));
      RowCopy copy;
      copy.from = DenseView(from, l);
      copy.from_rows = DenseRows(tensor.rows);
      copy.to = to;
      copy.to_rows = {sequence.spec->table.data(), sequence.spec->first_slot, sequence.triage.rows};
      copy.to_row = spec_.rows;
      copy.count = tensor.rows;
      copies_.push_back(copy);
    }
    return absl::OkStatus();
  }

  SessionMemory& memory_;
  const FuseSpec& spec_;
  CompressPlan& plan_;
  std::vector<RowCopy> copies_;
};

}  // namespace

absl::StatusOr<std::vector<RowCopy>> ResolveFuse(SessionMemory& memory, const FuseSpec& spec,
                                                 CompressPlan& plan) {
  return Resolver(memory, spec, plan).Resolve();
}

}  // namespace kvtriage
