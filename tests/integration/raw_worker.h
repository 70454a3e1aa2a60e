// A worker without the client library: gRPC and the fd socket by hand, so that a test sees exactly
// what the service says.
#ifndef KVTRIAGE_TESTS_INTEGRATION_RAW_WORKER_H_
#define KVTRIAGE_TESTS_INTEGRATION_RAW_WORKER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvtriage/v1/admin.grpc.pb.h"
#include "kvtriage/v1/blend.grpc.pb.h"
#include "kvtriage/v1/memory.grpc.pb.h"
#include "kvtriage/v1/session.grpc.pb.h"
#include "kvtriage/v1/triage.grpc.pb.h"
#include "service/memory/unique_fd.h"

namespace kvtriage {

// The detail of a refusal; empty when it has none.
v1::ErrorDetail DetailOf(const grpc::Status& status);
// "ok", the lower-case reason, or the code's number when there is no detail.
std::string ReasonOf(const grpc::Status& status);

std::shared_ptr<grpc::Channel> Connect(const std::string& socket_path);
std::string RandomKey();

// A unary call of any method with serialised messages.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* response);
// SERVING, NOT_SERVING, ... as grpc.health.v1 says; the status code's number when the call fails.
std::string HealthOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& service);

class RawWorker {
 public:
  explicit RawWorker(const std::string& socket_path);
  ~RawWorker();  // ends the stream without Goodbye, if it is open

  // Attach: Hello and Welcome. False: `status()` says why.
  bool Attach();
  bool Send(const v1::AttachRequest& request) { return stream_->Write(request); }
  std::optional<v1::AttachResponse> Read();
  grpc::Status FinishStream();
  grpc::Status Goodbye();  // and waits for the end

  // HELLO on the fd socket. The reason of a refusal, "ok", or "closed".
  std::string Bind() { return BindWith(welcome_.session_token()); }
  std::string BindWith(const std::string& token);
  // A ticket for `fd`; 0 when it was refused.
  uint64_t Offer(const UniqueFd& fd);

  // Lends `memory_` (a cache of kLayers layers, one block of kCapacity rows) and registers it.
  grpc::Status Lend();
  char* memory() { return memory_; }
  // The same cache in other memory: `region` says whose, of kRegionBytes and with Content.
  grpc::Status LendIn(const v1::RegionSpec& region);
  static std::vector<float> Content();
  // Whether a job of this worker has taken hold of what Lend registered.
  bool RegionIsPinned() const;

  std::unique_ptr<grpc::ClientContext> Context(int64_t deadline_ms = 20'000) const;

  // Keeps `kept` of `rows` rows of sequence `id` by a policy that needs no queries.
  v1::CompressRequest RecencyRequest(uint64_t id, uint32_t rows, uint32_t kept) const;
  // The same by attention of the newest four rows' queries, with everything measured.
  v1::CompressRequest AttentionRequest(uint64_t id, uint32_t rows, uint32_t kept) const;
  v1::SelectRecomputeRequest RecomputeRequest(uint32_t rows) const;
  grpc::Status Compress(const v1::CompressRequest& request, v1::CompressResponse* response);

  const v1::Welcome& welcome() const { return welcome_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  uint64_t region_id() const { return region_id_; }
  uint64_t cache_id() const { return cache_id_; }

  static constexpr uint32_t kLayers = 2, kQueryHeads = 4, kHeads = 2, kElems = 16, kCapacity = 64;
  static constexpr uint32_t kWindow = 4;
  // K and V of all layers, then the queries; f32.
  static constexpr uint64_t kPlaneBytes = uint64_t{kHeads} * kCapacity * kElems * 4;
  static constexpr uint64_t kCacheBytes = 2 * kLayers * kPlaneBytes;
  static constexpr uint64_t kQueryBytes = uint64_t{kLayers} * kWindow * kQueryHeads * kElems * 4;
  static constexpr uint64_t kRegionBytes = (kCacheBytes + kQueryBytes + 4095) / 4096 * 4096;

 private:
  v1::RegisterRegionsRequest RegisterRequest(const v1::RegionSpec& region) const;

  const std::string socket_path_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  grpc::ClientContext stream_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachResponse>> stream_;
  v1::Welcome welcome_;
  UniqueFd fd_socket_, ledger_, memfd_;
  char* memory_ = nullptr;
  uint64_t region_id_ = 0, cache_id_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_INTEGRATION_RAW_WORKER_H_
