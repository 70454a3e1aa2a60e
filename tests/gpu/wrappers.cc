// wrappers GOLDEN [--write FILE]: runs the instructions behind kernels/cuda/simt.h and holds what
// they gave against the rules of the PTX ISA and against GOLDEN, a dump that was kept (tests/data).
// --write keeps this one: words in hex, in the order of WrapperDump.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/gpu/device.h"
#include "tests/gpu/wrapper_rules.h"

namespace kvtriage::gpu {
namespace {

WrapperDump DumpOfDevice(const WrapperInput& input) {
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  WrapperDump dump;
  {
    DeviceBuffer from(sizeof input), to(sizeof dump);
    from.Fill(&input, sizeof input, stream);
    Must(LaunchWrapperDump(reinterpret_cast<const WrapperInput*>(from.data()),
                           reinterpret_cast<WrapperDump*>(to.data()), stream),
         "the kernel that dumps");
    Finish(stream);
    to.Read(&dump, sizeof dump, stream);
  }
  Must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return dump;
}

bool ReadDump(const char* path, WrapperDump& dump) {
  std::ifstream file(path);
  auto* words = reinterpret_cast<uint32_t*>(&dump);
  for (size_t i = 0; i < sizeof dump / 4; ++i) {
    if (!(file >> std::hex >> words[i])) return false;
  }
  return true;
}

void WriteDump(const char* path, const WrapperDump& dump) {
  std::ofstream file(path);
  const auto* words = reinterpret_cast<const uint32_t*>(&dump);
  for (size_t i = 0; i < sizeof dump / 4; ++i) {
    char word[16];
    std::snprintf(word, sizeof word, "%08x%c", words[i], i % 8 == 7 ? '\n' : ' ');
    file << word;
  }
}

int Report(const char* against, const std::string& difference) {
  std::printf("%s: %s\n", against, difference.empty() ? "equal" : difference.c_str());
  return difference.empty() ? 0 : 1;
}

int Run(int argc, char** argv) {
  SetDeviceOrSkip();
  const WrapperInput input = MakeWrapperInput();
  const WrapperDump dump = DumpOfDevice(input);
  if (argc == 4 && std::strcmp(argv[2], "--write") == 0) WriteDump(argv[3], dump);
  int wrong = Report("the PTX ISA's rules", DifferenceOf(dump, RightDump(input)));
  WrapperDump golden;
  if (!ReadDump(argv[1], golden)) {
    std::printf("%s: not a dump\n", argv[1]);
    return 1;
  }
  wrong += Report("the dump that was kept", DifferenceOf(dump, golden));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvtriage::gpu

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: wrappers GOLDEN [--write FILE]\n");
    return 2;
  }
  return kvtriage::gpu::Run(argc, argv);
}
