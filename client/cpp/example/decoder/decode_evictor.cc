#include "client/cpp/example/decoder/decode_evictor.h"

#include <utility>

#include "client/cpp/example/decoder/kept_rows.h"

namespace kvtriage::decoder {

client::ObserveRequest DecodeEvictor::Request(const ObserveOptions& options) const {
  client::ObserveRequest request;
  request.cache = decoder_.cache();
  request.policy = policy_;
  client::ObserveStep& step = request.steps.emplace_back();
  step.sequence = decoder_.sequence(counted_);
  step.draft_rows = options.draft_rows;
  step.trigger = options.trigger;
  step.accumulate_only = options.accumulate_only;
  request.inputs = decoder_.inputs();
  request.act = client::InPlace{};
  request.lengths = client::LengthRule::kOne;
  return request;
}

Observed DecodeEvictor::Observe(const ObserveOptions& options) {
  if (in_doubt_) BeginAnew();
  client::ObserveOutcome outcome = session_.Observe(Request(options));
  Observed observed{outcome.outcome, outcome.status, std::nullopt, false};
  if (!outcome.status.ok()) log_ << "observe: " << outcome.status << "\n";
  switch (outcome.outcome) {
    case client::Outcome::kApplied:
      counted_ = decoder_.tokens().size();
      if (outcome.result.has_value()) {
        client::ObserveStepResult& step = outcome.result->steps.at(0);
        observed.started = step.started;
        observed.evicted = std::move(step.evicted);
      }
      if (observed.evicted.has_value()) {
        TakeKept(outcome.fates.at(0), &observed.evicted->kept_sets, decoder_);
      } else if (!outcome.result.has_value()) {
        TakeKept(outcome.fates.at(0), nullptr, decoder_);
      }
      break;
    case client::Outcome::kDamaged:
      Rebuild(session_, outcome.quarantine, decoder_, log_);
      counted_ = 0;
      break;
    case client::Outcome::kUnchanged:
    case client::Outcome::kUnavailable:
      log_ << "nothing was counted: " << waiting() << " tokens come with the next call\n";
      break;
  }
  return observed;
}

void DecodeEvictor::Reject(uint32_t rows) {
  client::RewindRequest request;
  request.sequence_id = Decoder::kSequenceId;
  request.generation = decoder_.sequence().generation;
  request.rows = rows;
  const bool counted = waiting() == 0;
  decoder_.DropNewest(rows);
  if (!counted) return;  // their Observe failed: nobody counts them
  counted_ -= rows;
  const absl::StatusOr<client::RewindResult> rewound = session_.Rewind(request);
  if (rewound.ok()) return;
  log_ << "rewind: " << rewound.status() << "\nthe running scores begin anew\n";
  in_doubt_ = true;
}

void DecodeEvictor::BeginAnew() {
  const auto released = session_.ReleaseSequences({Decoder::kSequenceId});
  if (!released.ok()) log_ << "release: " << released.status() << "\n";
  in_doubt_ = !released.ok();
}

}  // namespace kvtriage::decoder
