// Policies as messages, both ways.
#ifndef KVTRIAGE_CLIENT_CPP_POLICY_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_POLICY_PROTO_H_

#include "kvtriage/policy.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage::client {

v1::Policy ToProto(const Policy& policy);
// Parts of kinds that are newer than this library are left out.
PolicyParts FromProto(const v1::PolicyParts& parts);
Policy FromProto(const v1::Policy& policy);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_POLICY_PROTO_H_
