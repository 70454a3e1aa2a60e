#include "service/rpc/memory_prober.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/splitmix64.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

constexpr int kMaxWaiting = 8;
constexpr uint32_t kRetryMs = 200;
// A multiple of the pattern's words.
constexpr uint64_t kDeviceChunk = uint64_t{4} << 20;

absl::StatusOr<RegionPin> PinFor(const std::shared_ptr<Session>& session, const ProbeSpec& spec) {
  KVTRIAGE_ASSIGN_OR_RETURN(RegionPin pin, session->memory().Pin(spec.region_id));
  if (!RangeFits(spec.offset, spec.length, pin.size())) {
    return Error(ErrorReason::kRangeOutOfRegion, "offset", "the range ends outside its region")
        .Got(spec.offset)
        .Limit(pin.size());
  }
  if (spec.write && !pin.writable()) {
    return Error(ErrorReason::kRegionReadOnly, "region_id", "the region was lent for reading only");
  }
  return pin;
}

}  // namespace

MemoryProber::MemoryProber(const DeviceList* devices, std::function<void()> on_lost)
    : devices_(devices),
      on_lost_(std::move(on_lost)),
      copiers_(devices == nullptr ? 1 : devices->size() + 1) {}

MemoryProber::~MemoryProber() {
  // What was made on the thread goes there.
  thread_.Post([this] { copiers_.clear(); });
}

absl::StatusOr<ProbeResult> MemoryProber::Run(const RegionPin& pin, const ProbeSpec& spec) {
  const absl::Time begin = absl::Now();
  ProbeResult result;
  if (pin.memory() == kHostMemory) {
    const std::span<std::byte> bytes(pin.data() + spec.offset, spec.length);
    if (spec.write) WritePattern(bytes, spec.seed);
    result.checksum = Fnv1a64(bytes);
  } else {
    const absl::Status probed = RunOnDevice(pin, spec, result);
    const auto info = GetErrorInfo(probed);
    if (info && info->reason == ErrorReason::kDeviceLost && on_lost_ != nullptr) on_lost_();
    KVTRIAGE_RETURN_IF_ERROR(probed);
  }
  result.microseconds = static_cast<uint32_t>(
      std::clamp<int64_t>(absl::ToInt64Microseconds(absl::Now() - begin), 0, UINT32_MAX));
  return result;
}

absl::Status MemoryProber::RunOnDevice(const RegionPin& pin, const ProbeSpec& spec,
                                       ProbeResult& result) {
  std::unique_ptr<DeviceCopier>& copier = copiers_[pin.memory()];
  if (copier == nullptr) {
    KVTRIAGE_ASSIGN_OR_RETURN(copier, devices_->at(pin.memory()).MakeCopier());
  }
  result.checksum = kFnvStart;
  std::vector<std::byte> chunk(std::min(spec.length, kDeviceChunk));
  for (uint64_t at = 0; at < spec.length; at += chunk.size()) {
    const std::span<std::byte> bytes(chunk.data(), std::min(spec.length - at, kDeviceChunk));
    std::byte* const there = pin.data() + spec.offset + at;
    if (spec.write) {
      WritePattern(bytes, spec.seed + at / sizeof(uint64_t));
      KVTRIAGE_RETURN_IF_ERROR(copier->ToDevice(there, bytes));
    }
    KVTRIAGE_RETURN_IF_ERROR(copier->ToHost(bytes, there));
    result.checksum = Fnv1a64(bytes, result.checksum);
  }
  return absl::OkStatus();
}

absl::StatusOr<ProbeSpec> ParseProbe(const v1::ProbeMemoryRequest& request) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("op", request.op(), &v1::ProbeMemoryRequest::Op_IsValid));
  if (request.length() == 0) return Missing("length");
  if (request.length() > kMaxProbeBytes) {
    return Error(ErrorReason::kTooMany, "length", "more bytes than a probe may touch")
        .Got(request.length())
        .Limit(kMaxProbeBytes);
  }
  ProbeSpec spec;
  spec.region_id = request.region_id();
  spec.offset = request.offset();
  spec.length = request.length();
  spec.write = request.op() == v1::ProbeMemoryRequest::OP_WRITE_PATTERN;
  spec.seed = request.seed();
  return spec;
}

uint64_t Fnv1a64(std::span<const std::byte> bytes, uint64_t hash) {
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

void WritePattern(std::span<std::byte> bytes, uint64_t seed) {
  for (uint64_t i = 0, at = 0; at < bytes.size(); ++i, at += sizeof(uint64_t)) {
    const uint64_t word = SplitMix64(seed + i, 0);
    std::memcpy(bytes.data() + at, &word, std::min<size_t>(sizeof(word), bytes.size() - at));
  }
}

void MemoryProber::Probe(const std::shared_ptr<Session>& session, const ProbeSpec& spec,
                         std::function<void(absl::StatusOr<ProbeResult>)> done) {
  absl::StatusOr<RegionPin> pin = PinFor(session, spec);
  if (!pin.ok()) return done(pin.status());
  if (waiting_.fetch_add(1) >= kMaxWaiting) {
    waiting_.fetch_sub(1);
    return done(Error(ErrorReason::kQueueFull, "", "too many probes wait").RetryAfterMs(kRetryMs));
  }
  // A std::function must be copyable, a pin is not.
  auto shared_pin = std::make_shared<RegionPin>(*std::move(pin));
  thread_.Post([this, shared_pin = std::move(shared_pin), spec, done = std::move(done)]() mutable {
    const absl::StatusOr<ProbeResult> result = Run(*shared_pin, spec);
    shared_pin.reset();  // before the answer: who has it may unregister at once
    waiting_.fetch_sub(1);
    done(result);
  });
}

}  // namespace kvtriage
