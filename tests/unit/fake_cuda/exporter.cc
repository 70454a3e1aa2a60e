// The other process of ipc_test.cc: allocates, writes a handle to stdout as hexadecimal, then does
// what the words in the pipe that it is given say, answering each with a line.
//   value     prints the first float        set X     sets it
//   free      frees the allocation          again     frees it, allocates anew, prints that handle
//   event     prints an event's handle      record    records it
//   quit
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "kernels/cuda/cuda_api.h"

namespace {

void PrintHex(const void* bytes, size_t size) {
  const auto* byte = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < size; ++i) std::printf("%02x", byte[i]);
  std::printf("\n");
  std::fflush(stdout);
}

float* Allocate() {
  void* pointer = nullptr;
  cudaIpcMemHandle_t handle;
  if (cudaMalloc(&pointer, 4096) != cudaSuccess ||
      cudaIpcGetMemHandle(&handle, pointer) != cudaSuccess) {
    std::exit(3);
  }
  static_cast<float*>(pointer)[0] = 42;
  PrintHex(&handle, sizeof handle);
  return static_cast<float*>(pointer);
}

void Say(const std::string& line) { std::cout << line << std::endl; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (cudaSetDevice(0) != cudaSuccess) return 2;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming);
  float* memory = Allocate();
  std::ifstream words(argv[1]);
  std::string word;
  while (words >> word && word != "quit") {
    if (word == "value") {
      Say(std::to_string(memory[0]));
    } else if (word == "set") {
      words >> memory[0];
      Say("set");
    } else if (word == "free") {
      cudaFree(memory);
      memory = nullptr;
      Say("freed");
    } else if (word == "again") {
      if (memory != nullptr) cudaFree(memory);
      memory = Allocate();
    } else if (word == "event") {
      cudaIpcEventHandle_t handle;
      if (cudaIpcGetEventHandle(&handle, event) != cudaSuccess) return 4;
      PrintHex(&handle, sizeof handle);
    } else if (word == "record") {
      cudaEventRecord(event, stream);
      while (cudaEventQuery(event) == cudaErrorNotReady) {
      }
      Say("recorded");
    }
  }
  return 0;
}
