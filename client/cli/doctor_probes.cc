#include "client/cli/doctor_probes.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/stamped_cache.h"
#include "kernels/core/splitmix64.h"
#include "kvtriage/device_memory.h"
#include "kvtriage/error_details.h"
#include "kvtriage/host_memory.h"

namespace kvtriage::cli {
namespace {

constexpr uint64_t kProbeBytes = 1 << 20;
// Neither end of the pattern lies on a page or a cache line: an offset that is off by a little
// shows.
constexpr uint64_t kPatternOffset = 4096 + 40, kPatternBytes = 65536 + 24;
// Of the device's allocation, in front of the lent part and behind it.
constexpr uint64_t kMargin = 4096;
constexpr uint64_t kFill = 0x6b76747269616765, kSeed = 0x646f63746f72;

uint64_t Fnv1a(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

// Word i is splitmix64(seed + i).
void Fill(std::span<std::byte> bytes, uint64_t seed) {
  for (uint64_t i = 0; i * 8 < bytes.size(); ++i) {
    const uint64_t word = SplitMix64(seed + i, 0);
    std::memcpy(bytes.data() + i * 8, &word, std::min<uint64_t>(8, bytes.size() - i * 8));
  }
}

Verdict Failed(absl::Status status) { return {std::move(status), "", ""}; }

// Memory that both sides use: kProbeBytes from `first` on are lent.
struct SharedBytes {
  uint64_t first = 0;
  std::vector<std::byte> content;                          // as this side has written it
  std::function<absl::Status(std::span<std::byte>)> read;  // all of it, as it is now
};

// The round trip over registered memory.
Verdict RoundTrip(client::Session& session, client::Region region, const SharedBytes& shared,
                  const TimeLeft& left) {
  const auto seen = session.Checksum(region, 0, kProbeBytes, left());
  if (!seen.ok()) return Failed(seen.status());
  std::vector<std::byte> expected = shared.content;
  const std::span<std::byte> lent = std::span(expected).subspan(shared.first, kProbeBytes);
  if (*seen != Fnv1a(lent)) return {{}, "pattern_mismatch", "the service reads other bytes"};
  Fill(lent.subspan(kPatternOffset, kPatternBytes), kSeed);
  const auto written = session.WritePattern(region, kPatternOffset, kPatternBytes, kSeed, left());
  if (!written.ok()) return Failed(written.status());
  std::vector<std::byte> found(expected.size());
  if (absl::Status read = shared.read(found); !read.ok()) return Failed(std::move(read));
  const auto differing = std::mismatch(expected.begin(), expected.end(), found.begin());
  if (differing.first != expected.end()) {
    return {{},
            "pattern_mismatch",
            absl::StrCat("byte ", differing.first - expected.begin(),
                         " is not what the service wrote")};
  }
  return {{}, "", absl::StrCat(kProbeBytes >> 10, " KiB read and written by both sides")};
}

// Lends, makes the round trip, takes back.
Verdict RegisteredRoundTrip(client::Session& session, const client::RegionSpec& spec,
                            const SharedBytes& shared, const TimeLeft& left) {
  const auto lent = session.Register({{spec}, {}}, left());
  if (!lent.ok()) return Failed(lent.status());
  Verdict verdict = RoundTrip(session, lent->regions[0], shared, left);
  const absl::Status closed = session.Unregister(lent->regions, {}, left());
  return verdict.status.ok() && verdict.word.empty() && !closed.ok() ? Failed(closed) : verdict;
}

Verdict ProbeDevice(client::Session& session, int ordinal, const TimeLeft& left) {
  SharedBytes shared{kMargin, std::vector<std::byte>(kProbeBytes + 2 * kMargin), nullptr};
  Fill(shared.content, kFill);
  const auto memory = client::DeviceMemory::Create(ordinal, shared.content.size());
  if (!memory.ok()) return Failed(memory.status());
  if (absl::Status filled = memory->Write(0, shared.content); !filled.ok()) {
    return Failed(std::move(filled));
  }
  shared.read = [&](std::span<std::byte> to) { return memory->Read(0, to); };
  const auto spec = memory->Lend(kMargin, kProbeBytes);
  if (!spec.ok()) return Failed(spec.status());
  return RegisteredRoundTrip(session, *spec, shared, left);
}

}  // namespace

Verdict ProbeHostMemory(client::Session& session, const TimeLeft& left) {
  const auto memory = client::HostMemory::Create(kProbeBytes);
  if (!memory.ok()) return Failed(memory.status());
  Fill(memory->bytes(), kFill);
  SharedBytes shared{0, {memory->bytes().begin(), memory->bytes().end()}, nullptr};
  shared.read = [&](std::span<std::byte> to) {
    std::copy(memory->bytes().begin(), memory->bytes().end(), to.begin());
    return absl::OkStatus();
  };
  return RegisteredRoundTrip(session, memory->Lend(), shared, left);
}

DeviceVerdict ProbeDeviceMemory(client::Session& session, const TimeLeft& left) {
  const auto devices = client::ListCudaDevices();
  if (!devices.ok()) {
    const auto details = client::GetErrorDetails(devices.status());
    const bool none = details.has_value() && details->reason == "no_device";
    if (!none) return {Failed(devices.status()), false, "CUDA"};
    return {{{}, "", absl::StrCat("none here: ", devices.status().message())}, true, ""};
  }
  DeviceVerdict verdict;
  std::string good;
  for (size_t i = 0; i < devices->size(); ++i) {
    const client::CudaDevice& device = (*devices)[i];
    verdict = {ProbeDevice(session, static_cast<int>(i), left), false,
               absl::StrCat(device.name, " (", device.uuid, ")")};
    if (!verdict.status.ok() || !verdict.word.empty()) return verdict;
    absl::StrAppend(&good, verdict.device, ": ", verdict.text, i + 1 < devices->size() ? "; " : "");
  }
  verdict.text = good;
  return verdict;
}

Verdict ProbeTriage(client::Session& session, const TimeLeft& left) {
  constexpr uint32_t kTokens = 64, kKept = 16;
  auto cache = StampedCache::Create(kTokens, 2, 2, 8);
  if (!cache.ok()) return Failed(cache.status());
  const auto lent = session.Register({{cache->memory().Lend()}, {cache->Describe()}}, left());
  if (!lent.ok()) return Failed(lent.status());

  client::CompressRequest request;
  request.cache = lent->caches[0];
  request.sequences = {cache->WholeSequence(1)};
  request.policy = client::NamedPolicyTokens("streaming", kKept);
  request.act = client::InPlace{};
  const client::CompressOutcome outcome = session.Compress(request, left());
  const absl::Status closed = session.UnregisterAll(left());
  if (!outcome.result.has_value()) return Failed(outcome.status);
  if (!closed.ok()) return Failed(closed);

  std::vector<int32_t> expected = {0, 1, 2, 3};
  for (int32_t row = 52; row < 64; ++row) expected.push_back(row);
  const std::string wrong = cache->Difference(expected, outcome.result->sequences[0].kept_sets);
  if (!wrong.empty()) return {{}, "wrong_answer", wrong};
  return {{},
          "",
          absl::StrCat("streaming kept ", kKept, " of ", kTokens, " rows in place, as it must")};
}

}  // namespace kvtriage::cli
