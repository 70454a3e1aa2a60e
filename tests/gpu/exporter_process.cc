#include "tests/gpu/exporter_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

#include "tests/gpu/device.h"

namespace kvtriage::gpu {
namespace {

constexpr uint64_t kInterior = 1 << 20;

void SayHandle(const void* pointer) {
  cudaIpcMemHandle_t handle;
  Must(cudaIpcGetMemHandle(&handle, const_cast<void*>(pointer)), "cudaIpcGetMemHandle");
  std::string hex;
  for (const char byte : handle.reserved) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    hex += two;
  }
  std::cout << hex << std::endl;
}

cudaIpcMemHandle_t FromHex(const std::string& hex) {
  cudaIpcMemHandle_t handle{};
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < hex.size(); ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

}  // namespace

int RunExporter() {
  SetDeviceOrSkip();
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  void* memory = nullptr;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string word;
    uint64_t number = 0;
    words >> word >> number;
    if (word == "allocate") {
      Must(cudaMalloc(&memory, number), "cudaMalloc");
      Must(cudaMemsetAsync(memory, 0x5A, number, stream), "cudaMemsetAsync");
      Finish(stream);
      SayHandle(memory);
    } else if (word == "interior") {
      SayHandle(static_cast<std::byte*>(memory) + kInterior);
    } else if (word == "free") {
      Must(cudaFree(memory), "cudaFree");
      std::cout << "freed" << std::endl;
    } else if (word == "read") {
      unsigned char byte = 0;
      Must(cudaMemcpyAsync(&byte, static_cast<std::byte*>(memory) + number, 1,
                           cudaMemcpyDeviceToHost, stream),
           "copy from the device");
      Finish(stream);
      std::cout << static_cast<unsigned>(byte) << std::endl;
    }
  }
  return 0;
}

ExporterProcess::ExporterProcess() {
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) std::exit(1);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out[0], STDIN_FILENO);
    dup2(in[1], STDOUT_FILENO);
    for (const int fd : {in[0], in[1], out[0], out[1]}) close(fd);
    execl("/proc/self/exe", "ipc_probe", "exporter", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(in[1]);
  close(out[0]);
  in_ = fdopen(in[0], "r");
  out_ = fdopen(out[1], "w");
}

ExporterProcess::~ExporterProcess() {
  Kill();
  std::fclose(in_);
  std::fclose(out_);
}

std::string ExporterProcess::Tell(const std::string& words) {
  std::fprintf(out_, "%s\n", words.c_str());
  std::fflush(out_);
  char line[512];
  if (std::fgets(line, sizeof line, in_) == nullptr) return "";
  std::string answer = line;
  if (!answer.empty() && answer.back() == '\n') answer.pop_back();
  return answer;
}

cudaIpcMemHandle_t ExporterProcess::Handle(const std::string& words) {
  return FromHex(Tell(words));
}

void ExporterProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace kvtriage::gpu
