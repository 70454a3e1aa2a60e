// A rank's call between its scores and its decision: it waits, off the lane, for the other ranks of
// its group.
#ifndef KVTRIAGE_SERVICE_ENGINE_GROUP_PART_H_
#define KVTRIAGE_SERVICE_ENGINE_GROUP_PART_H_

#include <cstdint>

#include "absl/status/status.h"
#include "service/engine/group_join.h"
#include "service/engine/group_terms.h"
#include "service/policy/group_spec.h"

namespace kvtriage {

// Holds no pins while it waits. On the lane, in this order: Sums, Decide, Begin, Apply.
class GroupPart {
 public:
  virtual ~GroupPart() = default;

  // What all ranks have to agree on.
  virtual const GroupTerms& terms() const = 0;
  // How much memory the part keeps while it waits.
  virtual uint64_t bytes() const = 0;
  // What is to be joined with the other ranks' in place. Empty: each rank decides for itself.
  virtual RankSums Sums() = 0;
  // Selects from the joined sums and checks all that will be written. Nothing is written.
  virtual absl::Status Decide() = 0;
  // All ranks have decided: nothing stops them any more. Notes in the ledger what comes.
  virtual void Begin() = 0;
  // Writes, and completes the answer.
  virtual absl::Status Apply() = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_GROUP_PART_H_
