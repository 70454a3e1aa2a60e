// Named places where a test build can be made to die, wait or hang. Without KVTRIAGE_FAULT_POINTS a
// point compiles to nothing and leaves no symbol behind. A point is never passed with a lock held.
#ifndef KVTRIAGE_SERVICE_OBSERVE_FAULT_POINT_H_
#define KVTRIAGE_SERVICE_OBSERVE_FAULT_POINT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#ifdef KVTRIAGE_FAULT_POINTS
#include "absl/status/status.h"
#endif

namespace kvtriage {

// Every point of this release.
inline constexpr std::array kFaultPointNames = std::to_array<std::string_view>({
    "session.before_welcome",  "session.after_welcome",
    "session.ending",          "session.before_close",
    "fd.after_hello",          "fd.after_ledger_sent",
    "fd.after_receive",        "fd.before_tickets",
    "memory.after_map",        "memory.after_fingerprint",
    "memory.before_reply",     "memory.before_close",
    "memory.after_close",      "admit.after_key",
    "admit.after_enqueue",     "admit.before_dequeue",
    "plan.after_pins",         "plan.after_checks",
    "lane.job_start",          "lane.after_score",
    "lane.after_select",       "group.before_park",
    "group.decided",           "ledger.after_free",
    "ledger.after_open",       "ledger.after_counts",
    "ledger.after_moving",     "ledger.after_done",
    "ledger.after_closed",     "move.mid_rows",
    "move.between_groups",     "copy.mid_rows",
    "rerotate.mid_rows",       "fuse.mid_rows",
    "result.before_store",     "result.after_store",
    "rpc.before_finish",       "rpc.after_finish",
    "drain.after_not_serving", "drain.before_shutdown",
    "drain.before_unmap",
});

// A name of the list above, looked up while compiling: a misspelt one does not build.
class FaultPointName {
 public:
  template <size_t kSize>
  // NOLINTNEXTLINE(google-explicit-constructor): FaultPoint("move.mid_rows") is the point of it.
  consteval FaultPointName(const char (&name)[kSize]) : index_(Find(std::string_view(name))) {}
  constexpr size_t index() const { return index_; }

 private:
  static consteval size_t Find(std::string_view name) {
    for (size_t i = 0; i < kFaultPointNames.size(); ++i) {
      if (kFaultPointNames[i] == name) return i;
    }
    throw "not a fault point of this release";  // never runs: makes the call ill-formed
  }
  size_t index_;
};

#ifdef KVTRIAGE_FAULT_POINTS

// Passes a point: does what SetFaults asked for, if this is the passing it named.
void FaultPoint(FaultPointName name);

// Replaces all faults and starts every count anew. `spec` is a comma-separated list of
// name:action[:n]; the action is `kill` (SIGKILL to this process), `delay=MS`, `until=PATH` (waits
// for that file; no colon or comma in its name) or `hang` (this thread, for ever), taken at the
// n-th passing (1 when not given) and at no other. Empty: no faults. InvalidArgument for an unknown
// name or action, a bad number, or a name given twice; then nothing has changed. Any thread.
absl::Status SetFaults(std::string_view spec);

// How often a point has been passed since the last SetFaults. Unknown names: 0.
uint64_t FaultPointPassings(std::string_view name);

#else

inline void FaultPoint(FaultPointName) {}

#endif  // KVTRIAGE_FAULT_POINTS

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_FAULT_POINT_H_
