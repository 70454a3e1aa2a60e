#include "client/cpp/compress_from_proto.h"

#include <string_view>
#include <utility>

#include "client/cpp/int32_bytes.h"
#include "client/cpp/kept_sets_from_proto.h"
#include "client/cpp/local_error.h"
#include "client/cpp/policy_proto.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

absl::Status Malformed(std::string_view what) {
  return LocalError(absl::StatusCode::kInternal, "bad_answer", what);
}

std::vector<LayerOutcome> LayersFrom(const v1::SequenceResult& from) {
  std::vector<LayerOutcome> out;
  for (const v1::LayerOutcome& layer : from.layers()) {
    out.push_back({layer.layer(), layer.kept(), layer.dropped(), layer.trimmed(),
                   layer.nonfinite_tokens(), layer.skipped_rows(), layer.stage1(), layer.stage2(),
                   layer.lse_suspect()});
  }
  return out;
}

// Cuts the table that the engine goes on with, so that no freed block is left in it.
absl::Status SetTable(const v1::SequenceResult& from, const Sequence& sequence, const Act& act,
                      SequenceResult& out) {
  const bool copied = std::holds_alternative<CopyTo>(act);
  out.table = copied ? sequence.destination : sequence.table;
  if (std::holds_alternative<SelectOnly>(act)) return absl::OkStatus();
  if (from.blocks_used() > out.table.size()) return Malformed("blocks_used exceeds the table");
  out.table.resize(from.blocks_used());
  for (uint32_t i = 0; i < from.blocks_used(); ++i) {
    if (BitAt(from.rewritten_bitmap(), i)) out.rewritten.push_back(i);
  }
  return absl::OkStatus();
}

template <typename Repeated>
std::vector<float> Floats(const Repeated& values) {
  return std::vector<float>(values.begin(), values.end());
}

Quality QualityFrom(const v1::Quality& from) {
  Quality out;
  out.sequence_id = from.sequence_id();
  out.layer = from.layer();
  if (from.has_mass_mean()) out.mass_mean = from.mass_mean();
  if (from.has_mass_p5()) out.mass_p5 = from.mass_p5();
  if (from.has_error()) out.error = from.error();
  if (from.has_error_p95()) out.error_p95 = from.error_p95();
  if (from.has_recall_mean()) out.recall_mean = from.recall_mean();
  out.head_mass_mean = Floats(from.head_mass_mean());
  out.head_mass_low = Floats(from.head_mass_low());
  out.head_error = Floats(from.head_error());
  out.head_error_high = Floats(from.head_error_high());
  out.head_recall = Floats(from.head_recall());
  return out;
}

}  // namespace

absl::StatusOr<SequenceResult> FromProto(const v1::SequenceResult& from, const Sequence& sequence,
                                         const Act& act, KeptFormat format,
                                         const std::vector<uint32_t>& heads) {
  if (from.sequence_id() != sequence.sequence_id)
    return Malformed("results are of other sequences");
  SequenceResult out;
  out.sequence_id = from.sequence_id();
  out.kv_revision = from.kv_revision();
  out.logical_len = from.logical_len();
  out.kept = from.kept();
  out.dropped = from.dropped();
  out.total_dropped = from.total_dropped();
  out.next_position = from.next_position();
  out.blocks_used = from.blocks_used();
  out.noop = from.noop();
  out.layers = LayersFrom(from);
  KVTRIAGE_RETURN_IF_ERROR(SetTable(from, sequence, act, out));
  KVTRIAGE_ASSIGN_OR_RETURN(out.kept_sets,
                            KeptSetsFrom(from.kept_sets(), format, sequence.physical_len, heads));
  return out;
}

Timing FromProto(const v1::Timing& timing) {
  return {timing.queue(), timing.score(), timing.select(), timing.move(), timing.total()};
}

absl::StatusOr<CompressResult> FromProto(const v1::CompressResponse& response,
                                         const CompressRequest& request,
                                         std::vector<uint32_t> heads) {
  CompressResult out;
  out.job_id = response.header().job_id();
  out.replayed = response.header().replayed();
  out.timing = FromProto(response.header().timing());
  out.policy = FromProto(response.policy());
  if (static_cast<size_t>(response.results_size()) != request.sequences.size()) {
    return Malformed("another number of results than sequences");
  }
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    KVTRIAGE_ASSIGN_OR_RETURN(SequenceResult result,
                              FromProto(response.results(static_cast<int>(i)), request.sequences[i],
                                        request.act, request.kept_format, heads));
    out.sequences.push_back(std::move(result));
  }
  for (const v1::Quality& quality : response.quality()) out.quality.push_back(QualityFrom(quality));
  return out;
}

}  // namespace kvtriage::client
