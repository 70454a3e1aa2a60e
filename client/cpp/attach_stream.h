// The lease: an open Attach stream. The session lives as long as it does.
#ifndef KVTRIAGE_CLIENT_CPP_ATTACH_STREAM_H_
#define KVTRIAGE_CLIENT_CPP_ATTACH_STREAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/transport.h"
#include "kvtriage/v1/session.pb.h"

namespace kvtriage::client {

// Called on gRPC's threads: must not block.
struct AttachEvents {
  std::function<void(const v1::Notice&)> notice;
  std::function<void()> lost;  // once, however the stream ended
};

class AttachStream {
 public:
  // Sends Hello and waits for Welcome, until `deadline` or until `stop` is set. `transport`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<AttachStream>> Open(Transport& transport,
                                                            const v1::AttachRequest::Hello& hello,
                                                            AttachEvents events,
                                                            absl::Time deadline,
                                                            const std::atomic<bool>& stop);
  // Cancels what is left. No event comes after it.
  ~AttachStream();

  const v1::Welcome& welcome() const;
  bool lost() const;
  // Ends the session cleanly; waits at most `timeout_ms` for the service to agree.
  void Goodbye(uint64_t timeout_ms);

 private:
  class Reactor;
  explicit AttachStream(std::unique_ptr<Reactor> reactor);
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_ATTACH_STREAM_H_
