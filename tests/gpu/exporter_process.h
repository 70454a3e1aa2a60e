// A second process that owns device memory and does what it is told: this program started again
// with the word "exporter". Lines of words in, lines of answers out.
#ifndef KVTRIAGE_TESTS_GPU_EXPORTER_PROCESS_H_
#define KVTRIAGE_TESTS_GPU_EXPORTER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage::gpu {

// What the started process runs: reads words until its input ends.
//   allocate BYTES   memory of its own (what it had is kept), every byte 0x5A; answers the handle
//   in hex interior         the handle of a pointer 1 MiB into the last allocation free frees the
//   last allocation; answers "freed" read OFFSET      the byte there, as a number
int RunExporter();

class ExporterProcess {
 public:
  ExporterProcess();
  ~ExporterProcess();  // ends it
  ExporterProcess(const ExporterProcess&) = delete;
  ExporterProcess& operator=(const ExporterProcess&) = delete;

  // Its answer; empty when it has ended.
  std::string Tell(const std::string& words);
  // A handle that it answers with.
  cudaIpcMemHandle_t Handle(const std::string& words);
  // SIGKILL; returns when it is gone.
  void Kill();

 private:
  pid_t pid_ = -1;
  std::FILE* in_ = nullptr;   // what it says
  std::FILE* out_ = nullptr;  // what it is told
};

}  // namespace kvtriage::gpu

#endif  // KVTRIAGE_TESTS_GPU_EXPORTER_PROCESS_H_
