#include "client/cli/doctor_advice.h"

#include <utility>

namespace kvtriage::cli {
namespace {

constexpr std::pair<std::string_view, std::string_view> kAdvice[] = {
    {"socket_missing", "start kvtriaged, or name its socket with --endpoint"},
    {"pid_collision",
     "service and worker have the same PID number in two PID namespaces: share one (Docker: --pid, "
     "Kubernetes: shareProcessNamespace), or restart one of them so that the numbers differ"},
    {"gpu_not_visible",
     "give the service this GPU too: CUDA_VISIBLE_DEVICES, the container's devices, cuda.devices"},
    {"mig_unsupported", "give both sides the same MIG instance, not its parent GPU"},
    {"peer_unsupported", "let the service see the GPU that holds the memory itself"},
    {"vmm_memory",
     "allocate the cache with cudaMalloc: no expandable_segments, no sleep mode, no memory pool"},
    {"map_failed",
     "the service cannot map the GPU's memory: give its container the same GPU and device files "
     "(modes of /dev/nvidia*); WSL2 and Tegra cannot do it"},
    {"no_device",
     "the service has no GPU: start a kvtriaged with CUDA where the GPU and its driver are "
     "visible, "
     "or lend host memory only (--host-only)"},
    {"device_memory",
     "the GPU's memory is full: start the service before the engine takes the rest, or make "
     "cuda.arena_bytes smaller"},
    {"fingerprint_mismatch",
     "the service sees other bytes under the handle: report the driver's version"},
    {"handle_in_use", "another session lends the same memory: end it first"},
    {"device_lost", "the GPU failed: see the service's log and the kernel's (Xid), restart both"},
    {"device_sick", "the GPU does not answer: see the kernel's log (Xid), reset it, restart both"},
    {"cuda_call", "CUDA failed in this process: look up the error's number, try nvidia-smi"},
    {"cuda_silent", "the GPU or its driver hangs: see nvidia-smi and the kernel's log (Xid)"},
};

}  // namespace

std::string_view AdviceFor(std::string_view word) {
  for (const auto& [known, advice] : kAdvice) {
    if (known == word) return advice;
  }
  return {};
}

}  // namespace kvtriage::cli
