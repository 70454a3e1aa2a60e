#include "client/cpp/compress_call.h"

#include <algorithm>
#include <utility>

#include "client/cpp/compress_from_proto.h"
#include "client/cpp/compress_to_proto.h"
#include "client/cpp/fates.h"
#include "client/cpp/writing_call.h"

namespace kvtriage::client {

std::vector<uint32_t> HeadsOf(const CacheSpec& cache, const std::vector<int32_t>& layers) {
  std::vector<uint32_t> heads;
  for (size_t i = 0; layers.empty() && i < cache.layers.size(); ++i)
    heads.push_back(cache.layers[i].kv_heads);
  for (const int32_t layer : layers) {
    const bool known = layer >= 0 && static_cast<size_t>(layer) < cache.layers.size();
    heads.push_back(known ? cache.layers[static_cast<size_t>(layer)].kv_heads
                          : 0);  // refused when unknown
  }
  return heads;
}

uint32_t BlockSlotsOf(const CacheSpec& cache) {
  return cache.layers.empty() ? 1 : std::max(1u, cache.layers.front().k.block_slots);
}

namespace {

Writes WritesOf(const CompressRequest& request) {
  if (std::holds_alternative<InPlace>(request.act)) return Writes::kInPlace;
  return std::holds_alternative<SelectOnly>(request.act) ? Writes::kNothing : Writes::kElsewhere;
}

class CompressCall final
    : public WritingCall<v1::CompressRequest, v1::CompressResponse, CompressOutcome> {
 public:
  CompressCall(Link& link, const CacheSpec& cache, const CompressRequest& request,
               const CallOptions& options, absl::Duration settle)
      : WritingCall(link, WritesOf(request), options, settle),
        request_(request),
        heads_(HeadsOf(cache, request.layers)),
        block_slots_(BlockSlotsOf(cache)) {}

 private:
  v1::CompressRequest Make(uint32_t slot, MemoryIds& ids) const override {
    return ToProto(request_, slot, ids);
  }

  CompressOutcome Answered(const v1::CompressResponse& response) override {
    absl::StatusOr<CompressResult> result = FromProto(response, request_, heads_);
    if (!result.ok()) return Unreadable(result.status());
    CompressOutcome outcome;
    outcome.outcome = Outcome::kApplied;
    outcome.fates = FatesOfAnswer(*result);
    outcome.result = *std::move(result);
    return outcome;
  }

  CompressOutcome Ended(Outcome outcome, absl::Status status) const override {
    return WithoutEffect(request_, outcome, std::move(status));
  }

  CompressOutcome OfSlot(const SlotReading& reading, absl::Status status) const override {
    CompressOutcome outcome;
    outcome.status = std::move(status);
    outcome.fates = FatesOfSlot(reading, request_.sequences, static_cast<uint32_t>(heads_.size()),
                                block_slots_);
    outcome.outcome = OutcomeOf(outcome.fates);
    return outcome;
  }

  const CompressRequest& request_;
  const std::vector<uint32_t> heads_;
  const uint32_t block_slots_;
};

}  // namespace

CompressOutcome RunCompress(Link& link, const CacheSpec& cache, const CompressRequest& request,
                            const CallOptions& options, absl::Duration settle) {
  return CompressCall(link, cache, request, options, settle).Run();
}

CompressOutcome WithoutEffect(const CompressRequest& request, Outcome outcome,
                              absl::Status status) {
  CompressOutcome out;
  out.outcome = outcome;
  out.status = std::move(status);
  out.fates =
      FatesAll(request.sequences, outcome == Outcome::kUnavailable ? Outcome::kUnchanged : outcome);
  return out;
}

}  // namespace kvtriage::client
