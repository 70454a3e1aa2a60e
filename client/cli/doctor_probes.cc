#include "client/cli/doctor_probes.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/stamped_cache.h"
#include "kernels/core/splitmix64.h"
#include "kvtriage/host_memory.h"

namespace kvtriage::cli {
namespace {

constexpr uint64_t kProbeBytes = 1 << 20;
// Neither end of the pattern lies on a page or a cache line: an offset that is off by a little
// shows.
constexpr uint64_t kPatternOffset = 4096 + 40, kPatternBytes = 65536 + 24;
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

// The round trip over registered memory.
Verdict RoundTrip(client::Session& session, client::Region region, const client::HostMemory& memory,
                  const TimeLeft& left) {
  const auto seen = session.Checksum(region, 0, kProbeBytes, left());
  if (!seen.ok()) return Failed(seen.status());
  if (*seen != Fnv1a(memory.bytes()))
    return {{}, "pattern_mismatch", "the service reads other bytes"};
  std::vector<std::byte> expected(memory.bytes().begin(), memory.bytes().end());
  const auto middle = std::span(expected).subspan(kPatternOffset, kPatternBytes);
  Fill(middle, kSeed);
  const auto written = session.WritePattern(region, kPatternOffset, kPatternBytes, kSeed, left());
  if (!written.ok()) return Failed(written.status());
  const auto differing = std::mismatch(expected.begin(), expected.end(), memory.bytes().begin());
  if (differing.first != expected.end()) {
    return {{},
            "pattern_mismatch",
            absl::StrCat("byte ", differing.first - expected.begin(),
                         " is not what the service wrote")};
  }
  return {{}, "", absl::StrCat(kProbeBytes >> 10, " KiB read and written by both sides")};
}

}  // namespace

Verdict ProbeHostMemory(client::Session& session, const TimeLeft& left) {
  const auto memory = client::HostMemory::Create(kProbeBytes);
  if (!memory.ok()) return Failed(memory.status());
  Fill(memory->bytes(), kFill);
  const auto lent = session.Register({{memory->Lend()}, {}}, left());
  if (!lent.ok()) return Failed(lent.status());
  Verdict verdict = RoundTrip(session, lent->regions[0], *memory, left);
  const absl::Status closed = session.Unregister(lent->regions, {}, left());
  return verdict.status.ok() && verdict.word.empty() && !closed.ok() ? Failed(closed) : verdict;
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
