// A stand-in for the CUDA runtime and driver, chosen at link time: "device" memory is files that
// processes share through 64-byte handles, streams are threads, kernels run in the emulator.
//
// What it is strict about, because real devices are: work of a stream runs late and only in order;
// results read too early are wrong (destinations hold 0xFF until a copy has run); nothing is
// ordered between streams but by events; every thread sets its device first (else the process
// stops, exit code kMisuseExit); memory of another kind than cudaMalloc's has no handle; a handle
// of this very process number does not open; a sticky error stays in every thread of the process.
//
// Environment:
//   KVTRIAGE_FAKE_CUDA         folder of the allocations, shared by the processes of one "machine";
//                              must exist. Unset: there is no driver (cudaErrorInsufficientDriver).
//   KVTRIAGE_FAKE_CUDA_SCRIPT  see Script below.
#ifndef KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_
#define KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace kvtriage::fake_cuda {

inline constexpr int kMisuseExit = 87;

// What happens at some call. Words, separated by blanks or semicolons:
//   devices=N          how many there are (1); 0: none (cudaErrorNoDevice)
//   memory=BYTES       of each device (1 GiB)
//   seed=N             how late streams start (0: as soon as their thread gets to it)
//   dead=CODE          what opening a handle of a dead exporter gives (0: it works)
//   freed=CODE         ... of a freed allocation (400)
//   guard=1            device memory is unreadable except while a copy or a kernel runs; for
//   programs
//                      with one thread
//   NAME@N:error=CODE  the N-th call of NAME (from 1; 0: every call) returns CODE and does nothing
//   NAME@N:sticky=CODE the same, and from then on so does every call
//   NAME@N:wait=MS     takes that long
//   NAME@N:hang        never returns
//   cudaMalloc@N:kind=vmm|pool|managed   the memory is as if it came from there: it has no handle
// A launch counts as a call of the name "launch". Replaces the script so far; false when it does
// not parse. Counts start anew.
bool Script(const std::string& text);

// Calls so far in this process, by name; "allocations" and "mappings" are those open now.
std::map<std::string, uint64_t> Counts();
// The same of another process that uses `folder`, also when it has ended.
std::map<std::string, uint64_t> CountsOf(const std::string& folder, pid_t process);

}  // namespace kvtriage::fake_cuda

#endif  // KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_
