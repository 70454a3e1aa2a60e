#include "client/cpp/keeper.h"

#include <algorithm>
#include <utility>

#include "client/cpp/local_error.h"
#include "client/cpp/register_memory.h"
#include "client/cpp/steady_time.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

// The longest pause leaves time to attach and register within a second of the service's return.
constexpr absl::Duration kFirstPause = absl::Milliseconds(50),
                         kLongestPause = absl::Milliseconds(800);
constexpr absl::Duration kRegisterAgain = absl::Seconds(5);
constexpr uint64_t kGoodbyeMs = 1000;

absl::Status NotAttached(const absl::Status& last_error) {
  std::string text = "not attached to a kvtriaged";
  if (!last_error.ok()) text += "; the last try: " + std::string(last_error.message());
  return LocalError(absl::StatusCode::kUnavailable, "not_attached", text);
}

}  // namespace

Keeper::~Keeper() {
  stop_ = true;
  {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  std::shared_ptr<Link> link;
  {
    MutexLock lock(&mutex_);
    link = link_;
  }
  if (link != nullptr && !link->lost()) link->Goodbye(kGoodbyeMs);
}

absl::Status Keeper::Start() {
  KVTRIAGE_RETURN_IF_ERROR(Attach());
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status Keeper::Attach() {
  auto notices = std::make_shared<Notices>();
  AttachEvents events;
  events.notice = [notices](const v1::Notice& notice) {
    if (notice.kind() == v1::Notice::KIND_DRAINING) notices->draining = true;
    if (notice.kind() == v1::Notice::KIND_DEVICE_SICK) notices->device_sick = true;
  };
  events.lost = [this] {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  };
  KVTRIAGE_ASSIGN_OR_RETURN(std::shared_ptr<Link> link,
                            Link::Open(options_, std::move(events), stop_));
  MutexLock registering(&registration_mutex_);
  KVTRIAGE_RETURN_IF_ERROR(RegisterAll(*link, book_.All(), absl::Now() + kRegisterAgain));
  // Destroyed after the lock is given back: the end of a link waits for its last event, which takes
  // it.
  std::vector<std::shared_ptr<Link>> done;
  MutexLock lock(&mutex_);
  const auto quiet = std::stable_partition(lost_links_.begin(), lost_links_.end(),
                                           [](const auto& old) { return !old->Quiet(); });
  done.assign(quiet, lost_links_.end());
  lost_links_.erase(quiet, lost_links_.end());
  if (link_ != nullptr) lost_links_.push_back(std::move(link_));
  link_ = std::move(link);
  notices_ = std::move(notices);
  ++attachments_;
  last_error_ = absl::OkStatus();
  changed_.NotifyAll();
  return absl::OkStatus();
}

void Keeper::Run() {
  while (WaitLost()) {
    for (absl::Duration pause = kFirstPause; Pause(pause);
         pause = std::min(2 * pause, kLongestPause)) {
      const absl::Status status = Attach();
      if (status.ok()) break;
      MutexLock lock(&mutex_);
      last_error_ = status;
    }
  }
}

bool Keeper::WaitLost() {
  MutexLock lock(&mutex_);
  while (!stop_ && !link_->lost()) changed_.Wait(&mutex_);
  return !stop_;
}

bool Keeper::Pause(absl::Duration duration) {
  const auto end = SteadyTime(absl::Now() + duration);
  MutexLock lock(&mutex_);
  while (!stop_ && changed_.WaitUntil(&mutex_, end)) {
  }
  return !stop_;
}

absl::StatusOr<std::shared_ptr<Link>> Keeper::Current() const {
  MutexLock lock(&mutex_);
  if (link_ == nullptr || link_->lost()) return NotAttached(last_error_);
  return link_;
}

bool Keeper::WaitAlive(absl::Time deadline) const {
  const auto end = SteadyTime(deadline);
  MutexLock lock(&mutex_);
  while (link_ == nullptr || link_->lost()) {
    if (!changed_.WaitUntil(&mutex_, end)) return link_ != nullptr && !link_->lost();
  }
  return true;
}

SessionState Keeper::state() const {
  MutexLock lock(&mutex_);
  SessionState state;
  state.attachments = attachments_;
  state.last_error = last_error_;
  if (link_ == nullptr) return state;
  state.alive = !link_->lost();
  state.epoch = link_->epoch();
  state.session_id = link_->session_id();
  state.server_pid = link_->server().pid;
  state.server_uid = link_->server().uid;
  state.server_gid = link_->server().gid;
  state.draining = notices_->draining;
  state.device_sick = notices_->device_sick;
  return state;
}

bool Keeper::WaitLostQuiet(absl::Time deadline) const {
  std::vector<std::shared_ptr<Link>> links;
  {
    MutexLock lock(&mutex_);
    links = lost_links_;
    if (link_ != nullptr && link_->lost()) links.push_back(link_);
  }
  return std::all_of(links.begin(), links.end(),
                     [&](const std::shared_ptr<Link>& link) { return link->WaitQuiet(deadline); });
}

uint64_t Keeper::Quarantine(std::shared_ptr<Link> link) {
  MutexLock lock(&mutex_);
  quarantined_.emplace(next_ticket_, std::move(link));
  return next_ticket_++;
}

bool Keeper::Quiet(uint64_t ticket) const {
  MutexLock lock(&mutex_);
  const auto it = quarantined_.find(ticket);
  return it == quarantined_.end() || it->second->Quiet();
}

}  // namespace kvtriage::client
