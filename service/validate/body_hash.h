// Tells a repeated request from another one under the same idempotency key.
#ifndef KVTRIAGE_SERVICE_VALIDATE_BODY_HASH_H_
#define KVTRIAGE_SERVICE_VALIDATE_BODY_HASH_H_

#include "google/protobuf/message.h"
#include "service/policy/body_digest.h"

namespace kvtriage {

// Size and hash of the deterministic serialisation of `request` without its field "header"; unknown
// fields count. The hash is two polynomials over the prime 2^61 - 1 with different fixed bases: two
// bodies of up to 1 MiB agree by chance with probability below 2^-80. It is no defence against a
// client that wants a collision: keys belong to a session, so it could only deceive itself.
BodyDigest BodyHash(const google::protobuf::Message& request);

// Of one layer of a CompressLayers stream: of the stream's first message and the layer. Never that
// of a Compress.
BodyDigest LayerHash(const BodyDigest& open, uint32_t layer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_BODY_HASH_H_
