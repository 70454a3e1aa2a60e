#include "service/rpc/answer_message.h"

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <variant>

#include "service/validate/policy_parts.h"

namespace kvtriage {
namespace {

static_assert(std::endian::native == std::endian::little, "index lists travel as they lie here");

void AppendInt32s(std::span<const int32_t> values, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void FillHeader(const CallResult& result, uint64_t epoch, v1::ResponseHeader& header) {
  const JobTiming& timing = result.answer->timing;
  header.set_server_epoch(epoch);
  header.set_job_id(result.answer->job_id);
  header.set_replayed(result.replayed);
  v1::Timing& times = *header.mutable_timing();
  times.set_queue(timing.queue);
  times.set_score(timing.score);
  times.set_select(timing.select);
  times.set_move(timing.move);
  times.set_total(timing.total);
}

v1::Granularity GranularityOf(Granularity granularity) {
  switch (granularity) {
    case Granularity::kPerHead:
      return v1::GRANULARITY_PER_HEAD;
    case Granularity::kPerLayer:
      return v1::GRANULARITY_PER_LAYER;
    case Granularity::kPerSequence:
      return v1::GRANULARITY_PER_SEQUENCE;
  }
  return v1::GRANULARITY_UNSPECIFIED;
}

void FillIndices(const TriageResult& triage, v1::KeptSets& sets) {
  sets.set_lists(static_cast<uint32_t>(triage.kept.size()));
  size_t rows = 0;
  for (const std::vector<int32_t>& list : triage.kept) {
    const auto count = static_cast<int32_t>(list.size());
    AppendInt32s({&count, 1}, *sets.mutable_counts_le());
    rows += list.size();
  }
  std::string& indices = *sets.mutable_indices_le();
  indices.reserve(rows * sizeof(int32_t));
  for (const std::vector<int32_t>& list : triage.kept) AppendInt32s(list, indices);
}

void FillPacked(const PackedKept& packed, KeptFormat format, v1::KeptSets& sets) {
  sets.set_lists(static_cast<uint32_t>(packed.counts.size()));
  AppendInt32s(packed.counts, *sets.mutable_counts_le());
  if (format == KeptFormat::kBitmap) sets.set_bitmaps(packed.bitmaps);
}

void FillKeptSets(const CompressAnswer& answer, const SequenceOutcome& outcome,
                  v1::KeptSets& sets) {
  sets.set_granularity(GranularityOf(answer.policy.granularity));
  if (answer.format == KeptFormat::kIndices) {
    FillIndices(outcome.triage, sets);
  } else if (outcome.packed) {
    FillPacked(*outcome.packed, answer.format, sets);
  } else {  // a layer of a stream: its lists serve the whole answer, too
    FillPacked(Pack(outcome.triage.kept, outcome.physical_len, answer.format), answer.format, sets);
  }
}

void FillLayers(const CompressAnswer& answer, const SequenceOutcome& outcome,
                v1::SequenceResult& result) {
  for (size_t i = 0; i < outcome.triage.layers.size(); ++i) {
    const TriageLayerOutcome& layer = outcome.triage.layers[i];
    v1::LayerOutcome& message = *result.add_layers();
    message.set_layer(answer.layer_indexes[i]);
    message.set_kept(layer.kept);
    message.set_dropped(static_cast<uint32_t>(outcome.physical_len) - layer.kept);
    message.set_trimmed(layer.trimmed);
    message.set_nonfinite_tokens(layer.nonfinite_tokens);
    message.set_skipped_rows(layer.skipped_rows);
    message.set_stage1(layer.stage1);
    message.set_stage2(layer.stage2);
    message.set_lse_suspect(layer.lse_suspect);
  }
}

void FillSequence(const CompressAnswer& answer, const SequenceOutcome& outcome,
                  v1::SequenceResult& result) {
  result.set_sequence_id(outcome.sequence_id);
  result.set_kv_revision(outcome.kv_revision);
  result.set_logical_len(outcome.logical_len);
  result.set_kept(outcome.kept);
  result.set_dropped(outcome.physical_len - outcome.kept);
  result.set_total_dropped(outcome.logical_len - outcome.kept);
  result.set_next_position(outcome.next_position);
  result.set_blocks_used(outcome.blocks_used);
  result.set_rewritten_bitmap(
      std::string(outcome.rewritten_bitmap.begin(), outcome.rewritten_bitmap.end()));
  result.set_noop(outcome.triage.noop);
  FillKeptSets(answer, outcome, *result.mutable_kept_sets());
  FillLayers(answer, outcome, result);
}

void AddAll(const std::vector<double>& values, google::protobuf::RepeatedField<float>* field) {
  for (const double value : values) field->Add(static_cast<float>(value));
}

// Fields that were not measured stay absent.
void FillQuality(const LayerQuality& quality, v1::Quality& message) {
  if (quality.has_mass) {
    message.set_mass_mean(static_cast<float>(quality.mass_mean));
    message.set_mass_p5(static_cast<float>(quality.mass_p5));
    AddAll(quality.head_mass_mean, message.mutable_head_mass_mean());
    AddAll(quality.head_mass_low, message.mutable_head_mass_low());
  }
  if (quality.has_error) {
    message.set_error(static_cast<float>(quality.error));
    message.set_error_p95(static_cast<float>(quality.error_p95));
    AddAll(quality.head_error, message.mutable_head_error());
    AddAll(quality.head_error_high, message.mutable_head_error_high());
  }
  if (quality.has_recall) {
    message.set_recall_mean(static_cast<float>(quality.recall_mean));
    AddAll(quality.head_recall, message.mutable_head_recall());
  }
}

}  // namespace

void FillRegisterResponse(const CallResult& result, uint64_t epoch,
                          v1::RegisterRegionsResponse& response) {
  const auto& ids = std::get<RegisteredIds>(result.answer->body);
  FillHeader(result, epoch, *response.mutable_header());
  for (const uint64_t id : ids.region_ids) response.add_region_ids(id);
  for (const uint64_t id : ids.cache_ids) response.add_cache_ids(id);
}

void FillCompressResponse(const CallResult& result, uint64_t epoch,
                          v1::CompressResponse& response) {
  const auto& answer = std::get<CompressAnswer>(result.answer->body);
  FillHeader(result, epoch, *response.mutable_header());
  *response.mutable_policy() = PolicyPartsOf(answer.policy);
  for (const SequenceOutcome& outcome : answer.sequences) {
    FillSequence(answer, outcome, *response.add_results());
    for (size_t i = 0; i < outcome.triage.quality.size(); ++i) {
      v1::Quality& message = *response.add_quality();
      message.set_sequence_id(outcome.sequence_id);
      message.set_layer(answer.layer_indexes[i]);
      FillQuality(outcome.triage.quality[i], message);
    }
  }
}

void FillOpened(const CallResult& result, uint64_t epoch,
                v1::CompressLayersResponse::Opened& message) {
  FillHeader(result, epoch, *message.mutable_header());
  const auto& answer = std::get<CompressAnswer>(result.answer->body);
  *message.mutable_policy() = PolicyPartsOf(answer.policy);
}

void FillLayerDone(const CallResult& result, uint64_t epoch, uint32_t layer,
                   v1::CompressLayersResponse::LayerDone& message) {
  FillHeader(result, epoch, *message.mutable_header());
  message.set_layer(layer);
  const auto& answer = std::get<CompressAnswer>(result.answer->body);
  for (const SequenceOutcome& outcome : answer.sequences) {
    FillSequence(answer, outcome, *message.add_results());
  }
}

void FillObserveResponse(const CallResult& result, uint64_t epoch, v1::ObserveResponse& response) {
  const auto& answer = std::get<ObserveAnswer>(result.answer->body);
  FillHeader(result, epoch, *response.mutable_header());
  *response.mutable_policy() = PolicyPartsOf(answer.policy);
  for (const ObserveAnswer::Step& step : answer.steps) {
    v1::ObserveResponse::StepResult& message = *response.add_steps();
    message.set_sequence_id(step.sequence_id);
    message.set_draft_rows(step.draft_rows);
    message.set_started(step.started);
    message.set_evicted(step.evicted.has_value());
    if (!step.evicted) continue;
    FillSequence(answer.evicted, answer.evicted.sequences[*step.evicted],
                 *message.mutable_result());
  }
}

void FillRewindResponse(const CallResult& result, uint64_t epoch, v1::RewindResponse& response) {
  const auto& answer = std::get<RewindAnswer>(result.answer->body);
  FillHeader(result, epoch, *response.mutable_header());
  response.set_draft_rows(answer.draft_rows);
  response.set_physical_len(answer.physical_len);
}

void FillSelectRecomputeResponse(const CallResult& result, uint64_t epoch,
                                 v1::SelectRecomputeResponse& response) {
  const auto& answer = std::get<RecomputeAnswer>(result.answer->body);
  FillHeader(result, epoch, *response.mutable_header());
  AppendInt32s(answer.rows, *response.mutable_rows_le());
  AppendInt32s(answer.limits, *response.mutable_limits_le());
  std::string& bitmap = *response.mutable_is_must_bitmap();
  bitmap.resize((answer.is_must.size() + 7) / 8);
  for (size_t i = 0; i < answer.is_must.size(); ++i) {
    if (answer.is_must[i]) bitmap[i / 8] = static_cast<char>(bitmap[i / 8] | (1 << (i % 8)));
  }
  response.set_must(answer.must);
  response.set_hkvd(answer.hkvd);
  response.set_base(answer.base);
  response.set_gap(answer.gap);
  response.set_nonfinite_rows(answer.nonfinite_rows);
  response.set_divergence_share(answer.divergence_share);
}

void FillRerotateResponse(const CallResult& result, uint64_t epoch,
                          v1::RerotateResponse& response) {
  const auto& answer = std::get<RerotateAnswer>(result.answer->body);
  FillHeader(result, epoch, *response.mutable_header());
  response.set_kv_revision(answer.kv_revision);
  response.set_rows_rotated(answer.rows_rotated);
}

void FillFuseResponse(const CallResult& result, uint64_t epoch, v1::FuseResponse& response) {
  const auto& answer = std::get<FuseAnswer>(result.answer->body);
  FillHeader(result, epoch, *response.mutable_header());
  response.set_kv_revision(answer.kv_revision);
  response.set_rows_written(answer.rows_written);
}

void FillListing(const std::vector<RegionListing>& regions, const std::vector<CacheListing>& caches,
                 uint64_t epoch, v1::ListRegionsResponse& response) {
  response.set_server_epoch(epoch);
  for (const RegionListing& region : regions) {
    v1::ListRegionsResponse::Region& message = *response.add_regions();
    message.set_region_id(region.region_id);
    message.set_tag(region.tag);
    message.set_kind(region.memory == kHostMemory ? v1::ListRegionsResponse::Region::KIND_HOST
                                                  : v1::ListRegionsResponse::Region::KIND_CUDA_IPC);
    message.set_size(region.size);
    message.set_access(region.writable ? v1::ACCESS_READ_WRITE : v1::ACCESS_READ);
    message.set_pins(region.pins);
    message.set_retiring(region.retiring);
  }
  for (const CacheListing& cache : caches) {
    v1::ListRegionsResponse::Cache& message = *response.add_caches();
    message.set_cache_id(cache.cache_id);
    message.set_tag(cache.tag);
    message.set_layers(cache.layers);
    for (const uint64_t id : cache.region_ids) message.add_region_ids(id);
  }
}

}  // namespace kvtriage
