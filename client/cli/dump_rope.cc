#include "client/cli/dump_rope.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {
namespace {

constexpr size_t kMaxSpeeds = 288;  // pairs of the largest head

absl::Status BadKey(const std::string& path, const char* key, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": metadata ", key, ": expected ", expected));
}

// Empty when the text is something else.
std::vector<double> ReadSpeeds(const std::string& text) {
  const auto list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array() || list.size() > kMaxSpeeds) return {};
  std::vector<double> speeds;
  for (const auto& item : list) {
    if (!item.is_number()) return {};
    speeds.push_back(item.get<double>());
  }
  return speeds;
}

}  // namespace

absl::StatusOr<std::optional<client::RopeSpec>> ReadRope(
    const std::string& path, const std::map<std::string, std::string>& metadata) {
  const auto get = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  const std::string pairing = get("rope_pairing");
  if (pairing.empty()) return std::optional<client::RopeSpec>();
  client::RopeSpec rope;
  if (pairing == "half") {
    rope.pairing = client::RopePairing::kHalf;
  } else if (pairing == "interleaved") {
    rope.pairing = client::RopePairing::kInterleaved;
  } else {
    return BadKey(path, "rope_pairing", "half or interleaved");
  }
  if (const std::string text = get("rope_speeds"); !text.empty()) {
    std::vector<double> speeds = ReadSpeeds(text);
    if (speeds.empty()) return BadKey(path, "rope_speeds", "a JSON list of 1 to 288 numbers");
    rope.rotary_dim = static_cast<uint32_t>(2 * speeds.size());
    rope.speeds = std::move(speeds);
    return std::optional<client::RopeSpec>(std::move(rope));
  }
  client::ThetaSpeeds speeds;
  if (!absl::SimpleAtod(get("rope_theta"), &speeds.theta) || !std::isfinite(speeds.theta) ||
      speeds.theta <= 1) {
    return BadKey(path, "rope_theta", "a finite number above 1");
  }
  rope.speeds = speeds;
  return std::optional<client::RopeSpec>(std::move(rope));
}

}  // namespace kvtriage::cli
