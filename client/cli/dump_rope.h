// The rotary part of a dump's keys, as its metadata tells it.
#ifndef KVTRIAGE_CLIENT_CLI_DUMP_ROPE_H_
#define KVTRIAGE_CLIENT_CLI_DUMP_ROPE_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kvtriage/cache_description.h"

namespace kvtriage::cli {

// From `rope_pairing` and `rope_theta`, or `rope_speeds` where a model scales its speeds; nothing
// when there is no `rope_pairing`. rotary_dim is 0 with a theta: all channels of a head turn.
// Errors name the key and what was expected.
absl::StatusOr<std::optional<client::RopeSpec>> ReadRope(
    const std::string& path, const std::map<std::string, std::string>& metadata);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_DUMP_ROPE_H_
