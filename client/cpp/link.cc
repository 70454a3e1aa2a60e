#include "client/cpp/link.h"

#include <algorithm>
#include <utility>

#include "client/cpp/endpoint.h"
#include "client/cpp/local_error.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

constexpr uint32_t kApiRevision = 1;
constexpr uint64_t kFdSocketMs = 2000;
constexpr uint64_t kQuietPollMs = 1;

v1::AttachRequest::Hello HelloOf(const ConnectOptions& options) {
  v1::AttachRequest::Hello hello;
  hello.set_min_api_revision(kApiRevision);
  hello.set_max_api_revision(kApiRevision);
  hello.set_client(options.client);
  hello.set_rank(options.rank);
  hello.set_world_size(options.world_size);
  return hello;
}

// gRPC's own error of a service that accepted the connection and then went away, or is none of
// ours.
absl::Status ExplainAttach(const absl::Status& status, const std::string& path) {
  if (GetErrorDetails(status).has_value()) return status;
  return LocalError(absl::StatusCode::kUnavailable, "not_kvtriage",
                    path + " is served, but not by a kvtriaged that lets us in: " +
                        std::string(status.message()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Link>> Link::Open(const ConnectOptions& options, AttachEvents events,
                                                 const std::atomic<bool>& stop) {
  const absl::Time deadline =
      absl::Now() + absl::Milliseconds(static_cast<int64_t>(options.connect_ms));
  const std::string path = SocketPath(options.endpoint);
  KVTRIAGE_RETURN_IF_ERROR(CheckListening(path));
  auto transport = std::make_unique<Transport>(path);
  auto stream = AttachStream::Open(*transport, HelloOf(options), std::move(events), deadline, stop);
  if (!stream.ok()) return ExplainAttach(stream.status(), path);

  const v1::Welcome& welcome = (*stream)->welcome();
  KVTRIAGE_ASSIGN_OR_RETURN(const std::string fd_path, SiblingPath(path, welcome.fd_socket_name()));
  KVTRIAGE_ASSIGN_OR_RETURN(FdSocketClient fd_socket,
                            FdSocketClient::Connect(fd_path, options.server_uid, kFdSocketMs));
  KVTRIAGE_ASSIGN_OR_RETURN(const BoundLedger bound, fd_socket.Hello(welcome.session_token()));
  if (bound.epoch != welcome.server_epoch()) {
    return LocalError(absl::StatusCode::kUnavailable, "not_kvtriage",
                      "the two sockets are of two services");
  }
  KVTRIAGE_ASSIGN_OR_RETURN(LedgerMapping mapping, LedgerMapping::Map(bound.fd.get(), bound.bytes));
  KVTRIAGE_RETURN_IF_ERROR(
      LedgerReader(mapping.memory(), bound.slots).Check(bound.epoch, welcome.session_id()));
  transport->SetToken(welcome.session_token());
  return std::shared_ptr<Link>(new Link(options, std::move(transport), *std::move(stream), fd_path,
                                        std::move(fd_socket), std::move(mapping)));
}

Link::Link(const ConnectOptions& options, std::unique_ptr<Transport> transport,
           std::unique_ptr<AttachStream> stream, std::string fd_path, FdSocketClient fd_socket,
           LedgerMapping mapping)
    : options_(options),
      transport_(std::move(transport)),
      stream_(std::move(stream)),
      fd_path_(std::move(fd_path)),
      fd_socket_(std::move(fd_socket)),
      mapping_(std::move(mapping)),
      ledger_(mapping_.memory(), stream_->welcome().ledger_slots()),
      life_(fd_socket_.socket()),
      slots_(stream_->welcome().ledger_slots()) {}

bool Link::WaitQuiet(absl::Time deadline) const {
  while (true) {
    if (ledger_.SessionClosed() || life_.WaitGone(kQuietPollMs)) return true;
    if (absl::Now() >= deadline) return false;
  }
}

absl::StatusOr<std::vector<uint64_t>> Link::Offer(std::span<const int> fds) {
  MutexLock lock(&offer_mutex_);
  FdSocketClient& current = spare_.has_value() ? *spare_ : fd_socket_;
  absl::StatusOr<std::vector<uint64_t>> tickets = current.Offer(fds);
  const auto details = GetErrorDetails(tickets.status());
  if (tickets.ok() || (details.has_value() && details->from_service) || lost()) return tickets;
  // A broken or out-of-step connection, not a refusal.
  KVTRIAGE_ASSIGN_OR_RETURN(FdSocketClient fresh,
                            FdSocketClient::Connect(fd_path_, options_.server_uid, kFdSocketMs));
  KVTRIAGE_RETURN_IF_ERROR(fresh.Hello(stream_->welcome().session_token()).status());
  spare_.emplace(std::move(fresh));
  return spare_->Offer(fds);
}

}  // namespace kvtriage::client
