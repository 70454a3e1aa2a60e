// The decision of a group whose ranks have all come, on the lane.
#ifndef KVTRIAGE_SERVICE_ENGINE_GROUP_RUN_H_
#define KVTRIAGE_SERVICE_ENGINE_GROUP_RUN_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "service/engine/job.h"

namespace kvtriage {

// Joins the ranks' sums, selects on every rank and writes on all of them, or on none: a call that
// is not `wanted` any more, or whose decision fails, keeps its own error, and the others get
// GROUP_MISMATCH. From the first write on nothing stops them; a write that fails (MOVE_FAILED) is
// that rank's alone. One status per job; jobs are in rank order and have their parts.
std::vector<absl::Status> RunGroup(const std::vector<std::unique_ptr<Job>>& ranks,
                                   const std::function<absl::Status(const Job&)>& wanted);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_GROUP_RUN_H_
