#include "client/cpp/example/decoder/evictor.h"

#include <chrono>
#include <thread>
#include <utility>

namespace kvtriage::decoder {

void WaitQuiet(const client::Session& session, uint64_t quarantine) {
  while (quarantine != 0 && !session.Quiet(quarantine)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Eviction Evictor::Compress(const client::Policy& policy, const client::Measure& measure) {
  if (!decoder_.kv().even()) {
    // The service knows one length per sequence, so shorter heads would be scored on stale rows.
    absl::Status status = absl::FailedPreconditionError(
        "heads have different numbers of rows: such a cache is compressed once");
    log_ << "compress: " << status << "\n";
    return {client::Outcome::kUnchanged, std::move(status), std::nullopt};
  }
  client::CompressRequest request;
  request.cache = decoder_.cache();
  request.sequences = {decoder_.sequence()};
  request.policy = policy;
  request.inputs = decoder_.inputs();
  request.act = client::InPlace{};
  request.measure = measure;
  client::CompressOutcome outcome = session_.Compress(request);

  const client::SequenceFate& fate = outcome.fates.at(0);
  Eviction eviction{outcome.outcome, outcome.status, std::nullopt};
  if (!outcome.status.ok()) log_ << "compress: " << outcome.status << "\n";
  switch (outcome.outcome) {
    case client::Outcome::kApplied:
      Apply(fate, outcome);
      eviction.result = std::move(outcome.result);
      break;
    case client::Outcome::kDamaged:
      log_ << "the cache is damaged: computing all " << decoder_.tokens().size()
           << " tokens again, none evicted\n";
      WaitQuiet(session_, outcome.quarantine);
      decoder_.Recompute();
      break;
    case client::Outcome::kUnchanged:
    case client::Outcome::kUnavailable:
      log_ << "nothing was evicted: going on with all " << decoder_.kv().longest() << " rows\n";
      break;
  }
  return eviction;
}

void Evictor::Apply(const client::SequenceFate& fate, const client::CompressOutcome& outcome) {
  LentKv& kv = decoder_.kv();
  const ModelConfig& config = decoder_.transformer().config();
  // Counts without an answer: one per (layer, head), per layer, or for all.
  const auto counted = [&](uint32_t layer, uint32_t head) {
    const size_t lists = fate.kept_rows.size(), heads = uint64_t{config.layers} * config.kv_heads;
    if (lists == heads) return fate.kept_rows[layer * config.kv_heads + head];
    if (lists == config.layers) return fate.kept_rows[layer];
    return static_cast<uint32_t>(fate.kept);
  };
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    for (uint32_t head = 0; head < config.kv_heads; ++head) {
      const uint32_t rows =
          outcome.result.has_value()
              ? static_cast<uint32_t>(
                    outcome.result->sequences.at(0).kept_sets.At(layer, head).size())
              : counted(layer, head);
      kv.Shrink(layer, head, rows);
    }
  }
  decoder_.set_kv_revision(fate.kv_revision);
  if (kv.longest() < decoder_.tokens().size()) decoder_.ForgetQueries();
}

}  // namespace kvtriage::decoder
