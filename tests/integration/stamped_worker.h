// A worker whose rows say where they came from: paged K and V of several sequences with interleaved
// blocks, so that any wrong move, and any wrong claim about one, shows in the bytes.
#ifndef KVTRIAGE_TESTS_INTEGRATION_STAMPED_WORKER_H_
#define KVTRIAGE_TESTS_INTEGRATION_STAMPED_WORKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvtriage/compress.h"
#include "kvtriage/host_memory.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

class StampedWorker {
 public:
  static constexpr uint32_t kLayers = 2, kHeads = 2, kElems = 8, kBlockSlots = 16;

  StampedWorker(uint32_t sequences, uint32_t rows);

  const HostMemory& memory() const { return memory_; }
  CacheSpec Describe() const;  // over region 0 of the registering call
  // Registers and remembers the cache. Fails the test on an error.
  void Lend(Session& session);
  const std::vector<Region>& regions() const { return lent_.regions; }
  Cache cache() const { return lent_.caches.at(0); }

  uint32_t sequences() const { return sequences_; }
  uint32_t rows() const { return rows_; }
  // As it was made: id i + 1.
  Sequence Of(uint32_t i) const;
  // Writes a token: the row behind `physical_len`, stamped as token `logical_len`.
  void Append(Sequence& sequence, uint32_t i);

  // Streaming to `kept` rows of the sequences, in place unless changed.
  CompressRequest Request(std::vector<Sequence> sequences, uint32_t kept) const;

  // What streaming keeps of `rows`: the first 4 and the newest.
  static std::vector<int32_t> StreamingRows(uint32_t rows, uint32_t kept);
  // The stamp (= token number) of each of the first `rows` rows of a sequence, if K and V of every
  // layer and head agree and belong to it; else what is wrong, in `why`.
  std::vector<int32_t> Tokens(const Sequence& sequence, uint32_t i, uint32_t rows,
                              std::string* why) const;

  // Fails the test unless the sequence is whole and untouched / holds exactly these tokens in
  // front.
  void ExpectUntouched(uint32_t i) const;
  void ExpectTokens(const Sequence& sequence, uint32_t i, const std::vector<int32_t>& tokens) const;

 private:
  float* Row(uint32_t plane, int32_t block, uint32_t slot, uint32_t head) const;
  static float Stamp(uint32_t plane, uint32_t sequence, uint32_t head, uint64_t token);

  const uint32_t sequences_, rows_, blocks_;  // blocks of one sequence: one more than it needs
  HostMemory memory_;
  Registered lent_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_TESTS_INTEGRATION_STAMPED_WORKER_H_
