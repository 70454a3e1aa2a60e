// What this machine can do at most, measured with `threads` threads at once.
#ifndef KVTRIAGE_TESTS_BENCH_CEILINGS_H_
#define KVTRIAGE_TESTS_BENCH_CEILINGS_H_

#include <cstddef>
#include <vector>

#include "kernels/cpu/thread_team.h"

namespace kvtriage::bench {

// Float32 multiply-adds in the widest registers, counted as two operations: operations per second.
double FmaRate(ThreadTeam& team);

// Memory beyond the caches to read and copy.
class MemoryCeiling {
 public:
  explicit MemoryCeiling(ThreadTeam& team);
  double ReadRate();  // bytes read per second
  double CopyRate();  // memcpy: bytes read plus bytes written per second

 private:
  ThreadTeam& team_;
  std::vector<std::byte> from_, to_;
};

}  // namespace kvtriage::bench

#endif  // KVTRIAGE_TESTS_BENCH_CEILINGS_H_
