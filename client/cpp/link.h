// One attachment to one life of the service: the lease, the token, the ledger, the ids. Never
// revived; a lost one is replaced by a new one.
#ifndef KVTRIAGE_CLIENT_CPP_LINK_H_
#define KVTRIAGE_CLIENT_CPP_LINK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/attach_stream.h"
#include "client/cpp/fd_socket_client.h"
#include "client/cpp/ledger_mapping.h"
#include "client/cpp/ledger_reader.h"
#include "client/cpp/ledger_slots.h"
#include "client/cpp/memory_ids.h"
#include "client/cpp/server_life.h"
#include "client/cpp/transport.h"
#include "kernels/core/mutex.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

// Thread-safe.
class Link {
 public:
  // Attach, Welcome, HELLO, ledger. Gives up at `options.connect_ms` or soon after `stop` is set.
  static absl::StatusOr<std::shared_ptr<Link>> Open(const ConnectOptions& options,
                                                    AttachEvents events,
                                                    const std::atomic<bool>& stop);

  uint64_t epoch() const { return stream_->welcome().server_epoch(); }
  uint64_t session_id() const { return stream_->welcome().session_id(); }
  const ServerProcess& server() const { return fd_socket_.server(); }

  // The stream is over: so is the session, though a job of it may still be running.
  bool lost() const { return stream_->lost(); }
  // Nothing of this session stores anything any more: the service said so, or it is gone.
  bool Quiet() const { return ledger_.SessionClosed() || life_.Gone(); }
  // True as soon as it is quiet.
  bool WaitQuiet(absl::Time deadline) const;

  Transport& transport() { return *transport_; }
  const LedgerReader& ledger() const { return ledger_; }
  const ServerLife& life() const { return life_; }
  LedgerSlots& slots() { return slots_; }
  MemoryIds& ids() { return ids_; }

  // Hands descriptors over; one ticket each. Connects to the fd socket again when the connection
  // broke.
  absl::StatusOr<std::vector<uint64_t>> Offer(std::span<const int> fds);

  void Goodbye(uint64_t timeout_ms) { stream_->Goodbye(timeout_ms); }

 private:
  Link(const ConnectOptions& options, std::unique_ptr<Transport> transport,
       std::unique_ptr<AttachStream> stream, std::string fd_path, FdSocketClient fd_socket,
       LedgerMapping mapping);

  const ConnectOptions options_;
  std::unique_ptr<Transport> transport_;  // before stream_, which uses it
  std::unique_ptr<AttachStream> stream_;
  const std::string fd_path_;
  FdSocketClient fd_socket_;  // of HELLO; kept open because life_ may watch it
  LedgerMapping mapping_;
  LedgerReader ledger_;
  ServerLife life_;
  LedgerSlots slots_;
  MemoryIds ids_;
  Mutex offer_mutex_;  // one exchange at a time; held over it, so nothing urgent may wait for it
  std::optional<FdSocketClient> spare_ ABSL_GUARDED_BY(offer_mutex_);
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_LINK_H_
