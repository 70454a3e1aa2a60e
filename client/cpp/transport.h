// The calls as gRPC makes them: one method, one try, one deadline. Statuses carry ErrorDetails when
// the service made them. No gRPC type leaves transport.cc and attach_stream.cc.
#ifndef KVTRIAGE_CLIENT_CPP_TRANSPORT_H_
#define KVTRIAGE_CLIENT_CPP_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtriage/v1/admin.pb.h"
#include "kvtriage/v1/blend.pb.h"
#include "kvtriage/v1/memory.pb.h"
#include "kvtriage/v1/session.pb.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage::client {

struct GrpcChannel;  // grpc_channel.h

// One CompressLayers. One thread writes while another reads; Cancel comes from any.
class LayersWire {
 public:
  virtual ~LayersWire() = default;
  // Both false when the stream is over.
  virtual bool Write(const v1::CompressLayersRequest& message) = 0;
  virtual bool Read(v1::CompressLayersResponse* message) = 0;
  virtual void HalfClose() = 0;
  virtual void Cancel() = 0;
  // Once, after Read has said that the stream is over.
  virtual absl::Status Finish() = 0;
};

// Thread-safe. A channel of its own: another client's broken connection and its back-off are not
// shared.
class Transport {
 public:
  explicit Transport(const std::string& socket_path);
  ~Transport();

  // Sent with every later call.
  void SetToken(std::string token) { token_ = std::move(token); }

  absl::Status Call(const v1::GetServerInfoRequest& in, v1::GetServerInfoResponse* out,
                    absl::Time deadline);
  absl::Status Call(const v1::RegisterRegionsRequest& in, v1::RegisterRegionsResponse* out,
                    absl::Time deadline);
  absl::Status Call(const v1::UnregisterRegionsRequest& in, v1::UnregisterRegionsResponse* out,
                    absl::Time deadline);
  absl::Status Call(const v1::ListRegionsRequest& in, v1::ListRegionsResponse* out,
                    absl::Time deadline);
  absl::Status Call(const v1::CompressRequest& in, v1::CompressResponse* out, absl::Time deadline);
  absl::Status Call(const v1::ObserveRequest& in, v1::ObserveResponse* out, absl::Time deadline);
  absl::Status Call(const v1::RewindRequest& in, v1::RewindResponse* out, absl::Time deadline);
  absl::Status Call(const v1::ReleaseSequenceRequest& in, v1::ReleaseSequenceResponse* out,
                    absl::Time deadline);
  absl::Status Call(const v1::SelectRecomputeRequest& in, v1::SelectRecomputeResponse* out,
                    absl::Time deadline);
  absl::Status Call(const v1::RerotateRequest& in, v1::RerotateResponse* out, absl::Time deadline);
  absl::Status Call(const v1::FuseRequest& in, v1::FuseResponse* out, absl::Time deadline);
  absl::Status Call(const v1::ProbeMemoryRequest& in, v1::ProbeMemoryResponse* out,
                    absl::Time deadline);

  std::unique_ptr<LayersWire> OpenLayers(absl::Time deadline);

  GrpcChannel& channel() { return *channel_; }

 private:
  std::unique_ptr<GrpcChannel> channel_;
  std::string token_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_TRANSPORT_H_
