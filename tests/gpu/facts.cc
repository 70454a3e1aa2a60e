// facts [--tiny]: which device this is, what it has left, and what it can do: one "name value" a
// line.
#include <cstdio>
#include <string>

#include "tests/gpu/ceilings.h"
#include "tests/gpu/device.h"

namespace {

using kvtriage::gpu::Must;

int Attribute(cudaDeviceAttr attribute) {
  int value = 0;
  Must(cudaDeviceGetAttribute(&value, attribute, 0), "cudaDeviceGetAttribute");
  return value;
}

std::string Uuid(const cudaDeviceProp& properties) {
  std::string text;
  for (const char byte : properties.uuid.bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    text += two;
  }
  return text;
}

void PrintDevice() {
  cudaDeviceProp properties{};
  Must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  Must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  Must(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  size_t free = 0, total = 0;
  Must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  std::printf("device %s\nuuid %s\ndriver_version %d\nruntime_version %d\n", properties.name,
              Uuid(properties).c_str(), driver, runtime);
  std::printf(
      "compute_capability %d.%d\nmultiprocessors %d\nl2_bytes %d\nshared_bytes_per_block %d\n",
      Attribute(cudaDevAttrComputeCapabilityMajor), Attribute(cudaDevAttrComputeCapabilityMinor),
      Attribute(cudaDevAttrMultiProcessorCount), Attribute(cudaDevAttrL2CacheSize),
      Attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  std::printf("free_bytes %zu\ntotal_bytes %zu\n", free, total);
}

}  // namespace

int main(int argc, char** argv) {
  const bool tiny = argc > 1 && std::string(argv[1]) == "--tiny";
  kvtriage::gpu::SetDeviceOrSkip();
  PrintDevice();
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const kvtriage::gpu::Ceilings ceilings =
      kvtriage::gpu::MeasureCeilings(tiny ? 1 << 16 : uint64_t{1} << 30, tiny ? 1 : 20000, stream);
  std::printf("copy_bytes_per_second %.4g\nmma_sync_bf16_flops %.4g\n", ceilings.copy,
              ceilings.mma);
  Must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return 0;
}
