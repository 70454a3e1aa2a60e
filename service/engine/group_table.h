// Which ranks of which groups have come. Knows jobs and times, no lane and no callbacks. Not
// thread-safe: the engine's lock guards it, and the time is told.
//
//   Join (admitted) --> scored --> Park (waits) --> whole: TakeReady
//        `-------------- End (a rank failed, is missing, or goes) ------> over
#ifndef KVTRIAGE_SERVICE_ENGINE_GROUP_TABLE_H_
#define KVTRIAGE_SERVICE_ENGINE_GROUP_TABLE_H_

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "service/engine/job.h"

namespace kvtriage {

// Ranks are different sessions. Only those of one user meet, so that nobody joins a group, or ends
// it, by a key that he has guessed or copied from another user.
struct GroupId {
  uint32_t uid = 0;
  GroupKey key{};
  auto operator<=>(const GroupId&) const = default;
};

// A group ends this long before the earliest of its deadlines, so that its ranks get our answer and
// not gRPC's.
inline constexpr absl::Duration kGroupMargin = absl::Milliseconds(50);

// The group of a job's call; null when it has none.
const GroupSpec* GroupOf(const Job& job);

class GroupTable {
 public:
  explicit GroupTable(const EngineLimits& limits) : limits_(limits) {}

  // A rank's call is admitted. GROUP_MISMATCH: the group is over, the rank has come already, or the
  // calls differ in kind or in the number of ranks; MIXED_MEMORY: they are for different devices;
  // QUOTA_STATE: too many groups.
  absl::Status Join(const GroupId& id, const Job& job, absl::Time deadline);

  // Whether the job's call is still expected: its group has not ended meanwhile.
  bool Expects(const GroupId& id, const Job& job) const;

  // The rank's call is scored and waits; `job` has its part. On an error it is left alone.
  // GROUP_MISMATCH: it wants something else than another rank; QUOTA_STATE: the waiting parts would
  // occupy too much.
  absl::Status Park(const GroupId& id, std::unique_ptr<Job>& job);

  // The jobs of a group of the lane that is whole, in rank order; it is over then. Empty: there is
  // none.
  std::vector<std::unique_ptr<Job>> TakeReady(DeviceIndex lane);
  bool HasReady(DeviceIndex lane) const { return FindReady(lane) != ready_.end(); }

  // Takes a group out: whoever comes late finds it over. `job` is null of a rank that does not wait
  // yet.
  struct Member {
    CallKey call;
    std::unique_ptr<Job> job;
  };
  std::vector<Member> End(const GroupId& id);

  // Groups whose time is up, or with a waiting rank that nobody waits for any more. Those that are
  // whole are the lane's.
  using Unwanted = std::function<bool(const Job&)>;
  struct Due {
    GroupId id;
    std::optional<CallKey> unwanted;
  };
  std::vector<Due> FindDue(absl::Time now, const Unwanted& unwanted) const;
  // When the next one's time is up; nothing while none waits.
  std::optional<absl::Time> NextDue() const;

  // Calls of a session that wait, whole groups' too, and match.
  struct Found {
    GroupId id;
    CallKey call;
  };
  std::vector<Found> Waiting(uint64_t session_id,
                             const std::function<bool(const Job&)>& matches) const;
  // Groups that need a rank whose call has not come.
  std::vector<GroupId> Incomplete() const;
  std::vector<GroupId> All() const;
  uint32_t waiting() const { return waiting_; }  // calls

 private:
  struct Rank {
    CallKey call;
    std::unique_ptr<Job> job;  // once it waits
  };
  struct Group {
    CallKind kind = CallKind::kCompress;
    DeviceIndex device = kHostMemory;
    std::map<uint32_t, Rank> ranks;  // that have come
    uint32_t size = 0, waiting = 0;
    uint64_t bytes = 0;
    absl::Time deadline = absl::InfiniteFuture();  // the earliest

    bool whole() const { return waiting == size; }
  };

  std::deque<GroupId>::const_iterator FindReady(DeviceIndex lane) const;

  const EngineLimits limits_;
  std::map<GroupId, Group> groups_;
  std::deque<GroupId> ready_;
  std::deque<GroupId> over_;  // the newest ones
  uint32_t waiting_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_GROUP_TABLE_H_
