#include "client/cli/dump.h"

#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/dump_rope.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status_macros.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {
namespace {

constexpr char kFormat[] = "kvtriage-dump-1";
constexpr uint64_t kMaxRows = uint64_t{1} << 24;
constexpr uint64_t kMaxHeadSize = 576;
constexpr uint64_t kMaxHeads = 1024;
constexpr uint64_t kMaxHiddenSize = 65'536;
constexpr uint32_t kMaxLayers = 256;
// What one command lends at most: a dump is a sample for a desk, not a whole server's memory.
constexpr uint64_t kMaxDumpBytes = uint64_t{8} << 30;

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Looks tensors of one layer up and checks them against what is expected.
class LayerTensors {
 public:
  LayerTensors(const SafetensorsFile& file, uint32_t layer) : file_(file), layer_(layer) {}

  std::string Name(const char* what) const { return absl::StrCat("layers.", layer_, ".", what); }

  absl::Status Wrong(const char* what, std::string_view text) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor ", Name(what), ": ",
                                                   absl::string_view(text.data(), text.size())));
  }

  absl::StatusOr<DumpTensor> Required(const char* what, size_t axes,
                                      uint64_t most_heads = kMaxHeads) const {
    const TensorEntry* entry = file_.Find(Name(what));
    if (entry == nullptr) return Wrong(what, "missing; this kind of dump needs it");
    DumpTensor tensor{*entry, DType::kF32};
    if (entry->dtype == "F16") {
      tensor.dtype = DType::kF16;
    } else if (entry->dtype == "BF16") {
      tensor.dtype = DType::kBF16;
    } else if (entry->dtype != "F32") {
      return Wrong(what, absl::StrCat("dtype ", entry->dtype, ", expected F16, BF16 or F32"));
    }
    if (entry->shape.size() != axes) {
      return Wrong(what,
                   absl::StrCat("shape ", ShapeText(entry->shape), ", expected ", axes, " axes"));
    }
    if (entry->bytes == 0)
      return Wrong(what, absl::StrCat("shape ", ShapeText(entry->shape), " is empty"));
    if (tensor.heads() > most_heads || tensor.rows() > kMaxRows) {
      return Wrong(
          what, absl::StrCat("shape ", ShapeText(entry->shape), ", the first two axes are at most ",
                             most_heads, " and ", kMaxRows));
    }
    return tensor;
  }

  absl::StatusOr<std::optional<DumpTensor>> Optional(const char* what, size_t axes,
                                                     uint64_t most_heads = kMaxHeads) const {
    if (file_.Find(Name(what)) == nullptr) return std::optional<DumpTensor>();
    KVTRIAGE_ASSIGN_OR_RETURN(DumpTensor tensor, Required(what, axes, most_heads));
    return std::optional<DumpTensor>(std::move(tensor));
  }

  absl::Status Expect(const char* what, const DumpTensor& tensor,
                      const std::vector<uint64_t>& shape) const {
    if (tensor.entry.shape == shape) return absl::OkStatus();
    return Wrong(what, absl::StrCat("shape ", ShapeText(tensor.entry.shape), ", expected ",
                                    ShapeText(shape)));
  }

 private:
  const SafetensorsFile& file_;
  const uint32_t layer_;
};

absl::Status CheckHeadSize(const LayerTensors& tensors, const char* what,
                           const DumpTensor& tensor) {
  if (tensor.elems() >= 1 && tensor.elems() <= kMaxHeadSize) return absl::OkStatus();
  return tensors.Wrong(what,
                       absl::StrCat("head size ", tensor.elems(), ", expected 1..", kMaxHeadSize));
}

absl::Status BadKey(const SafetensorsFile& file, const char* key, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": metadata ", key, ": expected ",
                   absl::string_view(expected.data(), expected.size())));
}

absl::Status ReadMoments(const LayerTensors& tensors, CacheLayer& layer) {
  KVTRIAGE_ASSIGN_OR_RETURN(layer.query_mean, tensors.Optional("query_mean", 2));
  KVTRIAGE_ASSIGN_OR_RETURN(layer.query_covariance, tensors.Optional("query_covariance", 3));
  if (layer.query_mean.has_value() != layer.query_covariance.has_value()) {
    return tensors.Wrong(layer.query_mean ? "query_covariance" : "query_mean",
                         "missing; query_mean and query_covariance come together or not at all");
  }
  if (!layer.query_mean) return absl::OkStatus();
  const uint64_t q_heads = layer.q.heads(), size = layer.k.elems();
  KVTRIAGE_RETURN_IF_ERROR(tensors.Expect("query_mean", *layer.query_mean, {q_heads, size}));
  return tensors.Expect("query_covariance", *layer.query_covariance, {q_heads, size, size});
}

}  // namespace

bool SameShape(const CacheLayer& a, const CacheLayer& b) {
  const auto same = [](const std::optional<DumpTensor>& x, const std::optional<DumpTensor>& y) {
    return x.has_value() == y.has_value() &&
           (!x || (x->entry.shape == y->entry.shape && x->dtype == y->dtype));
  };
  return same(a.k, b.k) && same(a.v, b.v) && same(a.q, b.q) && same(a.o, b.o) &&
         same(a.lse, b.lse) && same(a.colsum_all, b.colsum_all) &&
         same(a.output_projection, b.output_projection) && same(a.query_mean, b.query_mean) &&
         same(a.query_covariance, b.query_covariance);
}

absl::StatusOr<Dump> Dump::Open(const std::string& path) {
  KVTRIAGE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  Dump dump(std::move(file));
  std::vector<uint32_t> layers;
  KVTRIAGE_RETURN_IF_ERROR(dump.ReadMetadata(layers));
  uint64_t bytes = 0;
  for (const uint32_t layer : layers) {
    if (dump.kind_ == DumpKind::kCache) {
      KVTRIAGE_ASSIGN_OR_RETURN(CacheLayer read, dump.ReadCacheLayer(layer));
      bytes += read.k.entry.bytes + read.v.entry.bytes + read.q.entry.bytes;
      for (const auto* extra :
           {&read.o, &read.lse, &read.future_q, &read.colsum_all, &read.output_projection,
            &read.query_mean, &read.query_covariance}) {
        if (*extra) bytes += (*extra)->entry.bytes;
      }
      dump.cache_layers_.push_back(std::move(read));
    } else {
      KVTRIAGE_ASSIGN_OR_RETURN(BlendLayer read, dump.ReadBlendLayer(layer));
      bytes += read.fresh_v.entry.bytes + read.reused_v.entry.bytes;
      for (const auto* keys : {&read.fresh_k, &read.reused_k}) {
        if (*keys) bytes += (*keys)->entry.bytes;
      }
      dump.blend_layers_.push_back(std::move(read));
    }
    if (bytes > kMaxDumpBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(path, ": holds more than the ",
                                                       kMaxDumpBytes,
                                                       " bytes of tensors that one command reads"));
    }
  }
  return dump;
}

absl::Status Dump::ReadMetadata(std::vector<uint32_t>& layers) {
  const auto get = [&](const char* key) {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? std::string() : found->second;
  };
  if (get("format") != kFormat) return BadKey(file_, "format", kFormat);
  const std::string kind = get("kind");
  if (kind != "cache" && kind != "blend") return BadKey(file_, "kind", "cache or blend");
  kind_ = kind == "cache" ? DumpKind::kCache : DumpKind::kBlend;
  if (!absl::SimpleAtod(get("scale"), &scale_) || !std::isfinite(scale_) || scale_ <= 0) {
    return BadKey(file_, "scale", "a finite number above 0");
  }
  const std::string stage = get("query_stage");
  if (stage == "before_rope") {
    return BadKey(file_, "query_stage", "after_rope (queries before RoPE can't be rotated yet)");
  }
  if (stage != "after_rope") return BadKey(file_, "query_stage", "after_rope");
  if (!absl::SimpleAtoi(get("layers"), &model_layers_) || model_layers_ == 0) {
    return BadKey(file_, "layers", "the number of layers of the model");
  }
  const std::string base = get("lse_base");
  if (!base.empty() && base != "e" && base != "2") return BadKey(file_, "lse_base", "e or 2");
  has_lse_base_ = !base.empty();
  lse_base_ = base == "2" ? DumpLseBase::k2 : DumpLseBase::kE;
  model_ = get("model");
  KVTRIAGE_ASSIGN_OR_RETURN(rope_, ReadRope(file_.path(), file_.metadata()));

  const auto list = nlohmann::json::parse(get("dumped_layers"), nullptr, false);
  const char* const kList = "a JSON list of 1 to 256 layer numbers below `layers`, each once";
  if (!list.is_array() || list.empty() || list.size() > kMaxLayers)
    return BadKey(file_, "dumped_layers", kList);
  std::set<uint32_t> seen;
  for (const auto& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() >= model_layers_) {
      return BadKey(file_, "dumped_layers", kList);
    }
    layers.push_back(item.get<uint32_t>());
    if (!seen.insert(layers.back()).second) return BadKey(file_, "dumped_layers", kList);
  }
  return absl::OkStatus();
}

absl::StatusOr<DumpRope> Dump::Rope() const {
  const auto get = [&](const char* key) {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? std::string() : found->second;
  };
  DumpRope rope;
  if (!absl::SimpleAtod(get("rope_theta"), &rope.theta) || !std::isfinite(rope.theta) ||
      rope.theta <= 1) {
    return BadKey(file_, "rope_theta", "a number above 1, to rotate keys");
  }
  const std::string pairing = get("rope_pairing");
  if (pairing == "half") rope.pairing = client::RopePairing::kHalf;
  if (pairing == "interleaved") rope.pairing = client::RopePairing::kInterleaved;
  if (rope.pairing == client::RopePairing::kUnspecified) {
    return BadKey(file_, "rope_pairing", "half or interleaved, to rotate keys");
  }
  return rope;
}

absl::StatusOr<std::vector<int32_t>> Dump::OldPositions(uint64_t rows) const {
  const TensorEntry* const entry = file_.Find("old_positions");
  if (entry == nullptr || entry->dtype != "I32" || entry->shape != std::vector<uint64_t>{rows}) {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(),
                                                   ": tensor old_positions: expected I32 [", rows,
                                                   "], where the reused keys are rotated"));
  }
  std::vector<int32_t> positions(rows);
  KVTRIAGE_RETURN_IF_ERROR(file_.Read(*entry, std::as_writable_bytes(std::span(positions))));
  return positions;
}

absl::StatusOr<CacheLayer> Dump::ReadCacheLayer(uint32_t layer) const {
  const LayerTensors tensors(file_, layer);
  CacheLayer out;
  out.layer = layer;
  KVTRIAGE_ASSIGN_OR_RETURN(out.k, tensors.Required("k", 3));
  KVTRIAGE_ASSIGN_OR_RETURN(out.v, tensors.Required("v", 3));
  KVTRIAGE_ASSIGN_OR_RETURN(out.q, tensors.Required("q", 3));
  KVTRIAGE_RETURN_IF_ERROR(CheckHeadSize(tensors, "k", out.k));
  KVTRIAGE_RETURN_IF_ERROR(CheckHeadSize(tensors, "v", out.v));
  const uint64_t kv_heads = out.k.heads(), rows = out.k.rows(), q_heads = out.q.heads();
  KVTRIAGE_RETURN_IF_ERROR(tensors.Expect("v", out.v, {kv_heads, rows, out.v.elems()}));
  KVTRIAGE_RETURN_IF_ERROR(tensors.Expect("q", out.q, {q_heads, out.q.rows(), out.k.elems()}));
  if (q_heads % kv_heads != 0) {
    return tensors.Wrong(
        "q", absl::StrCat(q_heads, " query heads are no multiple of ", kv_heads, " KV heads"));
  }
  if (out.q.rows() > rows) {
    return tensors.Wrong("q",
                         absl::StrCat(out.q.rows(), " query rows, but the cache has only ", rows));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(out.o, tensors.Optional("o", 3));
  KVTRIAGE_ASSIGN_OR_RETURN(out.lse, tensors.Optional("lse", 2));
  KVTRIAGE_ASSIGN_OR_RETURN(out.future_q, tensors.Optional("future_q", 3));
  KVTRIAGE_ASSIGN_OR_RETURN(out.colsum_all, tensors.Optional("colsum_all", 2));
  if (out.o.has_value() != out.lse.has_value()) {
    return tensors.Wrong(out.o ? "lse" : "o", "missing; o and lse come together or not at all");
  }
  if (out.o) {
    if (!has_lse_base_)
      return BadKey(file_, "lse_base", "e or 2, because the dump has lse tensors");
    KVTRIAGE_RETURN_IF_ERROR(tensors.Expect("o", *out.o, {q_heads, out.q.rows(), out.v.elems()}));
    KVTRIAGE_RETURN_IF_ERROR(tensors.Expect("lse", *out.lse, {q_heads, out.q.rows()}));
  }
  if (out.future_q) {
    KVTRIAGE_RETURN_IF_ERROR(
        tensors.Expect("future_q", *out.future_q, {q_heads, out.future_q->rows(), out.k.elems()}));
  }
  if (out.colsum_all)
    KVTRIAGE_RETURN_IF_ERROR(tensors.Expect("colsum_all", *out.colsum_all, {q_heads, rows}));
  KVTRIAGE_ASSIGN_OR_RETURN(out.output_projection,
                            tensors.Optional("output_projection", 2, kMaxHiddenSize));
  if (out.output_projection) {
    KVTRIAGE_RETURN_IF_ERROR(
        tensors.Expect("output_projection", *out.output_projection,
                       {out.output_projection->entry.shape[0], q_heads * out.v.elems()}));
  }
  KVTRIAGE_RETURN_IF_ERROR(ReadMoments(tensors, out));
  return out;
}

absl::StatusOr<BlendLayer> Dump::ReadBlendLayer(uint32_t layer) const {
  const LayerTensors tensors(file_, layer);
  BlendLayer out;
  out.layer = layer;
  KVTRIAGE_ASSIGN_OR_RETURN(out.fresh_v, tensors.Required("fresh_v", 3));
  KVTRIAGE_ASSIGN_OR_RETURN(out.reused_v, tensors.Required("reused_v", 3));
  KVTRIAGE_RETURN_IF_ERROR(CheckHeadSize(tensors, "fresh_v", out.fresh_v));
  KVTRIAGE_RETURN_IF_ERROR(tensors.Expect(
      "reused_v", out.reused_v, {out.fresh_v.heads(), out.reused_v.rows(), out.fresh_v.elems()}));
  if (out.reused_v.rows() > out.fresh_v.rows()) {
    return tensors.Wrong(
        "reused_v",
        absl::StrCat(out.reused_v.rows(), " rows, but fresh_v has only ", out.fresh_v.rows()));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(out.fresh_k, tensors.Optional("fresh_k", 3));
  KVTRIAGE_ASSIGN_OR_RETURN(out.reused_k, tensors.Optional("reused_k", 3));
  const uint64_t heads = out.fresh_v.heads();
  if (out.fresh_k) {
    KVTRIAGE_RETURN_IF_ERROR(CheckHeadSize(tensors, "fresh_k", *out.fresh_k));
    KVTRIAGE_RETURN_IF_ERROR(
        tensors.Expect("fresh_k", *out.fresh_k, {heads, out.fresh_v.rows(), out.fresh_k->elems()}));
  }
  if (out.reused_k) {
    const uint64_t elems = out.fresh_k ? out.fresh_k->elems() : out.reused_k->elems();
    KVTRIAGE_RETURN_IF_ERROR(CheckHeadSize(tensors, "reused_k", *out.reused_k));
    KVTRIAGE_RETURN_IF_ERROR(
        tensors.Expect("reused_k", *out.reused_k, {heads, out.reused_v.rows(), elems}));
  }
  return out;
}

}  // namespace kvtriage::cli
