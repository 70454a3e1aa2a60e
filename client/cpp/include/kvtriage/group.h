// Ranks of a tensor-parallel model that decide together: each calls with its own part of the heads,
// and all get one set, or none moves a row (reason "group_mismatch").
#ifndef KVTRIAGE_CLIENT_GROUP_H_
#define KVTRIAGE_CLIENT_GROUP_H_

#include <array>
#include <cstdint>

namespace kvtriage::client {

struct Group {
  std::array<uint8_t, 16> key{};  // random, equal on all ranks, new for each call
  uint32_t rank = 0, size = 0;
  uint32_t first_kv_head = 0;   // of this rank, in the model
  uint32_t total_kv_heads = 0;  // of the model; a head that several ranks hold counts once
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_GROUP_H_
