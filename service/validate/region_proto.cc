#include "service/validate/region_proto.h"

#include <unistd.h>

#include <cstring>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/cache_proto.h"
#include "service/validate/device_uuid.h"
#include "service/validate/field_checks.h"
#include "service/validate/header_proto.h"

namespace kvtriage {
namespace {

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

absl::Status ParseFingerprint(const v1::RegionSpec::Fingerprint& fingerprint, RegionRequest& spec) {
  const std::string& expected = fingerprint.expected();
  if (expected.empty() || expected.size() > kMaxFingerprintBytes) {
    return Error(ErrorReason::kFieldInvalid, "fingerprint.expected", "length outside 1..64")
        .Got(expected.size())
        .Limit(kMaxFingerprintBytes);
  }
  if (!RangeFits(fingerprint.offset(), expected.size(), spec.size)) {
    return Error(ErrorReason::kRangeOutOfRegion, "fingerprint.offset", "ends outside the region")
        .Got(fingerprint.offset())
        .Limit(spec.size);
  }
  spec.fingerprint_offset = fingerprint.offset();
  spec.fingerprint = expected;
  return absl::OkStatus();
}

absl::Status ParseHost(const v1::RegionSpec::HostMemfd& host, RegionRequest& spec) {
  if (host.offset() % PageBytes() != 0) {
    return Error(ErrorReason::kFieldInvalid, "host.offset", "not a multiple of the page size")
        .Got(host.offset())
        .Limit(PageBytes());
  }
  spec.ticket = host.ticket();
  spec.offset = host.offset();
  return absl::OkStatus();
}

absl::Status ParseCuda(const v1::RegionSpec::CudaIpc& cuda, RegionRequest& spec) {
  if (cuda.handle().size() != kIpcHandleBytes) {
    return Error(ErrorReason::kHandleMalformed, "cuda_ipc.handle", "a handle has 64 bytes")
        .Got(cuda.handle().size())
        .Limit(kIpcHandleBytes);
  }
  if (cuda.device_uuid().empty()) return Missing("cuda_ipc.device_uuid");
  if (!IsDeviceUuid(cuda.device_uuid())) {
    return Invalid("cuda_ipc.device_uuid", "not the UUID of a device");
  }
  if (!cuda.has_base_offset()) return Missing("cuda_ipc.base_offset");
  if (cuda.allocation_bytes() == 0) return Missing("cuda_ipc.allocation_bytes");
  if (cuda.exporter_pid() == 0) return Missing("cuda_ipc.exporter_pid");
  if (cuda.generation() == 0) return Missing("cuda_ipc.generation");
  if (!RangeFits(cuda.base_offset(), spec.size, cuda.allocation_bytes())) {
    return Error(ErrorReason::kRangeOutOfRegion, "cuda_ipc.base_offset",
                 "the region ends outside its allocation")
        .Got(cuda.base_offset())
        .Limit(cuda.allocation_bytes());
  }
  CudaAllocation& allocation = spec.cuda.emplace();
  std::memcpy(allocation.handle.data(), cuda.handle().data(), kIpcHandleBytes);
  allocation.device_uuid = cuda.device_uuid();
  allocation.base_offset = cuda.base_offset();
  allocation.allocation_bytes = cuda.allocation_bytes();
  allocation.exporter_pid = cuda.exporter_pid();
  allocation.generation = cuda.generation();
  return absl::OkStatus();
}

absl::StatusOr<RegionRequest> ParseRegion(const v1::RegionSpec& region) {
  if (region.has_cuda_vmm()) {
    return absl::Status(Error(ErrorReason::kUnsupported, "cuda_vmm",
                              "memory of CUDA's virtual memory management is not built"));
  }
  if (!region.has_host() && !region.has_cuda_ipc()) return Missing("host");
  if (region.size() == 0) return Invalid("size", "region of 0 bytes");
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("access", region.access(), v1::Access_IsValid));
  RegionRequest spec;
  spec.size = region.size();
  KVTRIAGE_RETURN_IF_ERROR(region.has_host() ? ParseHost(region.host(), spec)
                                             : ParseCuda(region.cuda_ipc(), spec));
  spec.writable = region.access() == v1::ACCESS_READ_WRITE;
  spec.tag = region.tag();
  if (region.has_fingerprint()) {
    KVTRIAGE_RETURN_IF_ERROR(ParseFingerprint(region.fingerprint(), spec));
  }
  return spec;
}

absl::Status CheckCount(std::string_view field, int count, uint32_t most) {
  if (static_cast<uint32_t>(count) <= most) return absl::OkStatus();
  return Error(ErrorReason::kTooMany, field, "more than a session may have")
      .Got(static_cast<uint32_t>(count))
      .Limit(most);
}

}  // namespace

absl::StatusOr<RegisterSpec> ParseRegister(const v1::RegisterRegionsRequest& request,
                                           const Limits& limits) {
  RegisterSpec spec;
  KVTRIAGE_ASSIGN_OR_RETURN(spec.header, ParseHeader(request.has_header(), request.header()));
  if (spec.header.resolve) return spec;
  if (request.regions_size() == 0 && request.caches_size() == 0) return Missing("regions");
  KVTRIAGE_RETURN_IF_ERROR(CheckCount("regions", request.regions_size(), limits.max_regions));
  KVTRIAGE_RETURN_IF_ERROR(CheckCount("caches", request.caches_size(), limits.max_caches));
  for (int i = 0; i < request.regions_size(); ++i) {
    auto region = ParseRegion(request.regions(i));
    if (!region.ok()) {
      return UnderField(region.status(), Indexed("regions", static_cast<uint64_t>(i)));
    }
    spec.regions.push_back(*std::move(region));
  }
  for (int i = 0; i < request.caches_size(); ++i) {
    const std::string field = Indexed("caches", static_cast<uint64_t>(i));
    if (!request.caches(i).has_spec()) return Missing(field + ".spec");
    auto cache = ParseCache(request.caches(i).spec(), static_cast<uint32_t>(spec.regions.size()));
    if (!cache.ok()) return UnderField(cache.status(), field + ".spec");
    spec.caches.push_back({*std::move(cache), request.caches(i).tag()});
  }
  return spec;
}

}  // namespace kvtriage
