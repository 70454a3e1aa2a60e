// ipc_probe [--tiny]: the open questions about CUDA IPC, answered by two processes: one line an
// answer, "name value". What the service is built on (a handle opens in another process at the base
// of the whole allocation; memory outlives its exporter) has to hold, else the exit code is 1; the
// rest is told and not judged.
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/gpu/device.h"
#include "tests/gpu/exporter_process.h"

namespace kvtriage::gpu {
namespace {

int wrong = 0;

void Say(const char* name, const std::string& value) {
  std::printf("%s %s\n", name, value.c_str());
  std::fflush(stdout);
}

std::string Name(cudaError_t error) {
  return std::to_string(static_cast<int>(error)) + " " + cudaGetErrorName(error);
}

void Expect(const char* name, bool holds, const std::string& value) {
  Say(name, value + (holds ? "" : " <-- not what the service relies on"));
  if (!holds) ++wrong;
}

cudaError_t Open(const cudaIpcMemHandle_t& handle, std::byte** memory) {
  void* opened = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
  *memory = static_cast<std::byte*>(opened);
  return error;
}

// Of the last failed call, and whether the device still works after it.
std::string AfterError(cudaStream_t stream, void* memory) {
  cudaGetLastError();
  const cudaError_t after = cudaMemsetAsync(memory, 1, 4, stream);
  return after == cudaSuccess ? "goes away" : "stays: " + Name(after);
}

unsigned ByteAt(const std::byte* at, cudaStream_t stream) {
  unsigned char byte = 0;
  if (cudaMemcpyAsync(&byte, at, 1, cudaMemcpyDeviceToHost, stream) != cudaSuccess) return 256;
  Finish(stream);
  return byte;
}

uint64_t FreeBytes() {
  size_t free = 0, total = 0;
  Must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

std::string Signed(uint64_t after, uint64_t before) {
  return std::to_string(static_cast<int64_t>(after - before));
}

// Question 1 and 7 of one's own handles.
void ProbeOwnHandle(cudaStream_t stream) {
  const DeviceBuffer own(4 << 20);
  cudaIpcMemHandle_t handle;
  Must(cudaIpcGetMemHandle(&handle, own.data()), "cudaIpcGetMemHandle");
  std::byte* memory = nullptr;
  const cudaError_t error = Open(handle, &memory);
  Say("open_in_the_same_process", Name(error));
  if (error == cudaSuccess) {
    cudaIpcCloseMemHandle(memory);
  } else {
    Say("error_after_open_in_the_same_process", AfterError(stream, own.data()));
  }
}

// Handles of another process: sharing, opening twice, interior pointers.
void ProbeSharing(cudaStream_t stream) {
  ExporterProcess exporter;
  const cudaIpcMemHandle_t handle = exporter.Handle("allocate 4194304");
  std::byte* memory = nullptr;
  const cudaError_t error = Open(handle, &memory);
  Expect("open_in_another_process", error == cudaSuccess, Name(error));
  if (error != cudaSuccess) return;
  Expect("its_bytes_are_seen", ByteAt(memory + 100, stream) == 0x5A,
         std::to_string(ByteAt(memory + 100, stream)));
  Must(cudaMemsetAsync(memory + 100, 0x77, 1, stream), "cudaMemsetAsync");
  Finish(stream);
  const std::string seen = exporter.Tell("read 100");
  Expect("our_bytes_are_seen_there", seen == "119", seen);
  std::byte* again = nullptr;
  const cudaError_t twice = Open(handle, &again);
  Say("open_twice", Name(twice) + (again == memory ? ", the same pointer" : ", another pointer"));
  if (twice == cudaSuccess) cudaIpcCloseMemHandle(again);
  const cudaIpcMemHandle_t inside = exporter.Handle("interior");
  Say("handle_of_an_interior_pointer",
      std::memcmp(&inside, &handle, sizeof handle) == 0 ? "the same bytes" : "other bytes");
  std::byte* interior = nullptr;
  const cudaError_t opened = Open(inside, &interior);
  const char* place = interior == memory ? ", at the base" : ", not at the base";
  Expect("open_of_an_interior_pointer", opened != cudaSuccess || interior == memory,
         Name(opened) + place);
  if (opened == cudaSuccess) cudaIpcCloseMemHandle(interior);
  Must(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle");
}

// Stale handles: freed, allocated anew, exporter killed before the open.
void ProbeStaleHandles(cudaStream_t stream, void* mine) {
  ExporterProcess exporter;
  const cudaIpcMemHandle_t handle = exporter.Handle("allocate 4194304");
  exporter.Tell("free");
  std::byte* memory = nullptr;
  cudaError_t error = Open(handle, &memory);
  Say("open_after_the_exporter_freed", Name(error));
  if (error == cudaSuccess) {
    cudaIpcCloseMemHandle(memory);
  } else {
    Say("error_of_a_freed_handle", AfterError(stream, mine));
  }
  const cudaIpcMemHandle_t second = exporter.Handle("allocate 4194304");
  Say("handle_after_free_and_new_allocation",
      std::memcmp(&second, &handle, sizeof handle) == 0 ? "the same bytes" : "other bytes");
  exporter.Kill();
  error = Open(second, &memory);
  Say("open_after_the_exporter_died", Name(error));
  if (error == cudaSuccess) {
    cudaIpcCloseMemHandle(memory);
  } else {
    Say("error_of_a_dead_handle", AfterError(stream, mine));
  }
}

// The exporter is killed while its memory is open here.
void ProbeDeath(uint64_t bytes, cudaStream_t stream) {
  const uint64_t before = FreeBytes();
  ExporterProcess exporter;
  std::byte* memory = nullptr;
  const cudaError_t error = Open(exporter.Handle("allocate " + std::to_string(bytes)), &memory);
  if (error != cudaSuccess) return Expect("open_before_the_kill", false, Name(error));
  const uint64_t open = FreeBytes();
  Say("context_and_memory_of_the_exporter_bytes", Signed(before, open));
  exporter.Kill();
  const unsigned byte = ByteAt(memory + bytes - 1, stream);
  Expect("memory_outlives_its_exporter", byte == 0x5A, std::to_string(byte));
  Say("free_bytes_back_after_the_kill", Signed(FreeBytes(), open));
  Must(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle");
  Say("free_bytes_back_after_our_close", Signed(FreeBytes(), open));
}

double MillisecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void ProbeTimes(const std::string& name, uint64_t bytes) {
  if (FreeBytes() < bytes + (uint64_t{2} << 30) && bytes > (uint64_t{1} << 30)) {
    return Say(("open_close_ms_" + name).c_str(), "not enough free memory");
  }
  ExporterProcess exporter;
  const cudaIpcMemHandle_t handle = exporter.Handle("allocate " + std::to_string(bytes));
  std::byte* memory = nullptr;
  const double open = MillisecondsOf([&] { Must(Open(handle, &memory), "open"); });
  const double close = MillisecondsOf([&] { Must(cudaIpcCloseMemHandle(memory), "close"); });
  char text[64];
  std::snprintf(text, sizeof text, "%.3f %.3f", open, close);
  Say(("open_close_ms_" + name).c_str(), text);
}

int Run(bool tiny) {
  SetDeviceOrSkip();
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  {
    const DeviceBuffer mine(4096);
    ProbeOwnHandle(stream);
    ProbeSharing(stream);
    ProbeStaleHandles(stream, mine.data());
  }
  ProbeDeath(tiny ? 4 << 20 : uint64_t{256} << 20, stream);
  ProbeTimes("64MiB", tiny ? 4 << 20 : uint64_t{64} << 20);
  if (!tiny) {
    ProbeTimes("8GiB", uint64_t{8} << 30);
    ProbeTimes("64GiB", uint64_t{64} << 30);
  }
  Must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  Say("legs_that_failed", std::to_string(wrong));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvtriage::gpu

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "exporter") return kvtriage::gpu::RunExporter();
  return kvtriage::gpu::Run(word == "--tiny");
}
