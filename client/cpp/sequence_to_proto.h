// Sequences and positions as messages.
#ifndef KVTRIAGE_CLIENT_CPP_SEQUENCE_TO_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_SEQUENCE_TO_PROTO_H_

#include "kvtriage/compress.h"
#include "kvtriage/v1/types.pb.h"

namespace kvtriage::client {

v1::SequenceSpec ToProto(const Sequence& sequence);
v1::Positions ToProto(const Positions& positions);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_SEQUENCE_TO_PROTO_H_
