// Groups of ranks as messages.
#ifndef KVTRIAGE_CLIENT_GROUP_TO_PROTO_H_
#define KVTRIAGE_CLIENT_GROUP_TO_PROTO_H_

#include "kvtriage/group.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage::client {

inline v1::Group ToProto(const Group& group) {
  v1::Group out;
  out.set_group_key(group.key.data(), group.key.size());
  out.set_rank(group.rank);
  out.set_size(group.size);
  out.set_first_kv_head(group.first_kv_head);
  out.set_total_kv_heads(group.total_kv_heads);
  return out;
}

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_GROUP_TO_PROTO_H_
