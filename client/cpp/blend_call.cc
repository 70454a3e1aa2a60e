#include "client/cpp/blend_call.h"

#include <utility>

#include "client/cpp/blend_proto.h"
#include "client/cpp/compress_call.h"
#include "client/cpp/fates.h"
#include "client/cpp/writing_call.h"

namespace kvtriage::client {
namespace {

uint64_t RowsOf(const v1::RerotateResponse& response) { return response.rows_rotated(); }
uint64_t RowsOf(const v1::FuseResponse& response) { return response.rows_written(); }

// A call that overwrites rows of one sequence where they stand, or copies them.
template <typename Request, typename Message, typename Response>
class RowsCall final : public WritingCall<Message, Response, RowsOutcome> {
 public:
  RowsCall(Link& link, const CacheSpec& cache, const Request& request, Writes writes,
           const CallOptions& options, absl::Duration settle)
      : WritingCall<Message, Response, RowsOutcome>(link, writes, options, settle),
        request_(request),
        layers_(static_cast<uint32_t>(request.layers.empty() ? cache.layers.size()
                                                             : request.layers.size())),
        block_slots_(BlockSlotsOf(cache)) {}

 private:
  Message Make(uint32_t slot, MemoryIds& ids) const override {
    return ToProto(request_, slot, ids);
  }

  RowsOutcome Answered(const Response& response) override {
    RowsOutcome outcome = Ended(Outcome::kApplied, absl::OkStatus());
    outcome.kv_revision = response.kv_revision();
    outcome.rows = RowsOf(response);
    return outcome;
  }

  RowsOutcome Ended(Outcome outcome, absl::Status status) const override {
    RowsOutcome out;
    out.outcome = outcome;
    out.status = std::move(status);
    return out;
  }

  RowsOutcome OfSlot(const SlotReading& reading, absl::Status status) const override {
    const SequenceFate fate =
        FatesOfSlot(reading, {request_.sequence}, layers_, block_slots_).front();
    RowsOutcome outcome = Ended(fate.outcome, std::move(status));
    outcome.kv_revision = fate.kv_revision;
    return outcome;
  }

  const Request& request_;
  const uint32_t layers_;
  const uint32_t block_slots_;
};

}  // namespace

RowsOutcome RunRerotate(Link& link, const CacheSpec& cache, const RerotateRequest& request,
                        const CallOptions& options, absl::Duration settle) {
  const Writes writes =
      std::holds_alternative<InPlace>(request.act) ? Writes::kInPlace : Writes::kElsewhere;
  return RowsCall<RerotateRequest, v1::RerotateRequest, v1::RerotateResponse>(
             link, cache, request, writes, options, settle)
      .Run();
}

RowsOutcome RunFuse(Link& link, const CacheSpec& cache, const FuseRequest& request,
                    const CallOptions& options, absl::Duration settle) {
  return RowsCall<FuseRequest, v1::FuseRequest, v1::FuseResponse>(link, cache, request,
                                                                  Writes::kInPlace, options, settle)
      .Run();
}

}  // namespace kvtriage::client
