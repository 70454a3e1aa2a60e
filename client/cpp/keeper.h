// Keeps a session attached: a thread that waits for the lease to end and then attaches and
// registers anew until it works.
#ifndef KVTRIAGE_CLIENT_CPP_KEEPER_H_
#define KVTRIAGE_CLIENT_CPP_KEEPER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/link.h"
#include "client/cpp/memory_book.h"
#include "kernels/core/mutex.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

// Thread-safe.
class Keeper {
 public:
  explicit Keeper(const ConnectOptions& options) : options_(options) {}
  // Stops, says goodbye.
  ~Keeper();

  // The first attachment, on the caller's thread; then the thread starts.
  absl::Status Start();

  // The link, while it is alive: UNAVAILABLE (not_attached) at once otherwise.
  absl::StatusOr<std::shared_ptr<Link>> Current() const;
  bool WaitAlive(absl::Time deadline) const;
  SessionState state() const;
  MemoryBook& book() { return book_; }

  // Held by whoever changes what is lent, over the calls that do it: so that what a new attachment
  // registers and what the book holds cannot drift apart.
  Mutex& registration_mutex() { return registration_mutex_; }

  // Waits until no session that was lost can store anything any more.
  bool WaitLostQuiet(absl::Time deadline) const;

  // Remembers the link of blocks that must not be reused yet; the ticket is never 0.
  uint64_t Quarantine(std::shared_ptr<Link> link);
  bool Quiet(uint64_t ticket) const;

 private:
  struct Notices {
    std::atomic<bool> draining{false}, device_sick{false};
  };

  absl::Status Attach();
  void Run();
  // False when stopped.
  bool WaitLost();
  bool Pause(absl::Duration duration);

  const ConnectOptions options_;
  MemoryBook book_;
  Mutex registration_mutex_;  // before mutex_
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::atomic<bool> stop_{false};
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Notices> notices_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Link>> lost_links_ ABSL_GUARDED_BY(mutex_);  // perhaps not quiet yet
  std::map<uint64_t, std::shared_ptr<Link>> quarantined_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  uint32_t attachments_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_KEEPER_H_
