// What tells two request bodies apart when they carry the same idempotency key.
#ifndef KVTRIAGE_SERVICE_POLICY_BODY_DIGEST_H_
#define KVTRIAGE_SERVICE_POLICY_BODY_DIGEST_H_

#include <cstdint>

namespace kvtriage {

// Size and 128-bit hash of a body without its header. Compare within one process only.
struct BodyDigest {
  uint64_t bytes = 0;
  uint64_t low = 0, high = 0;

  friend bool operator==(const BodyDigest&, const BodyDigest&) = default;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_BODY_DIGEST_H_
