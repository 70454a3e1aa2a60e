#include "client/cpp/example/decoder/evictor.h"

#include <utility>

#include "client/cpp/example/decoder/kept_rows.h"

namespace kvtriage::decoder {

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

  Eviction eviction{outcome.outcome, outcome.status, std::move(outcome.result)};
  if (!outcome.status.ok()) log_ << "compress: " << outcome.status << "\n";
  switch (outcome.outcome) {
    case client::Outcome::kApplied:
      TakeKept(outcome.fates.at(0),
               eviction.result ? &eviction.result->sequences.at(0).kept_sets : nullptr, decoder_);
      break;
    case client::Outcome::kDamaged:
      Rebuild(session_, outcome.quarantine, decoder_, log_);
      break;
    case client::Outcome::kUnchanged:
    case client::Outcome::kUnavailable:
      log_ << "nothing was evicted: going on with all " << decoder_.kv().longest() << " rows\n";
      break;
  }
  return eviction;
}

}  // namespace kvtriage::decoder
