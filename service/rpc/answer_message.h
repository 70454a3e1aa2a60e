// Answers as messages: the way back from plain values to protobuf. No gRPC.
#ifndef KVTRIAGE_SERVICE_RPC_ANSWER_MESSAGE_H_
#define KVTRIAGE_SERVICE_RPC_ANSWER_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "kvtriage/v1/blend.pb.h"
#include "kvtriage/v1/memory.pb.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/engine/engine.h"
#include "service/memory/session_memory.h"

namespace kvtriage {

// `result` is OK and its answer is of the method's kind; `response` is empty before.
void FillRegisterResponse(const CallResult& result, uint64_t epoch,
                          v1::RegisterRegionsResponse& response);
void FillCompressResponse(const CallResult& result, uint64_t epoch, v1::CompressResponse& response);
void FillOpened(const CallResult& result, uint64_t epoch,
                v1::CompressLayersResponse::Opened& message);
// `result` is of one layer of a stream.
void FillLayerDone(const CallResult& result, uint64_t epoch, uint32_t layer,
                   v1::CompressLayersResponse::LayerDone& message);
void FillObserveResponse(const CallResult& result, uint64_t epoch, v1::ObserveResponse& response);
void FillRewindResponse(const CallResult& result, uint64_t epoch, v1::RewindResponse& response);
void FillSelectRecomputeResponse(const CallResult& result, uint64_t epoch,
                                 v1::SelectRecomputeResponse& response);
void FillRerotateResponse(const CallResult& result, uint64_t epoch, v1::RerotateResponse& response);
void FillFuseResponse(const CallResult& result, uint64_t epoch, v1::FuseResponse& response);

void FillListing(const std::vector<RegionListing>& regions, const std::vector<CacheListing>& caches,
                 uint64_t epoch, v1::ListRegionsResponse& response);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_ANSWER_MESSAGE_H_
