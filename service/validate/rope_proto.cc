#include "service/validate/rope_proto.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/core/error.h"
#include "kernels/core/rope_speeds.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

static_assert(static_cast<int>(RopePairing::kHalf) == v1::ROPE_PAIRING_HALF);
static_assert(static_cast<int>(RopePairing::kInterleaved) == v1::ROPE_PAIRING_INTERLEAVED);

absl::Status CheckPositive(std::string_view field, double value) {
  return value > 0 && std::isfinite(value) ? absl::OkStatus()
                                           : Invalid(field, "must be finite and above 0");
}

absl::Status CheckLength(std::string_view field, uint32_t length) {
  return length > 0 ? absl::OkStatus() : Invalid(field, "must be above 0");
}

absl::Status ReadLlama3(const v1::RopeSpec::Llama3& llama3, RopeTheta& theta) {
  KVTRIAGE_RETURN_IF_ERROR(CheckPositive("theta.llama3.factor", llama3.factor()));
  KVTRIAGE_RETURN_IF_ERROR(CheckPositive("theta.llama3.low", llama3.low()));
  KVTRIAGE_RETURN_IF_ERROR(CheckPositive("theta.llama3.high", llama3.high()));
  if (llama3.high() <= llama3.low()) return Invalid("theta.llama3.high", "not above low");
  KVTRIAGE_RETURN_IF_ERROR(CheckLength("theta.llama3.original_length", llama3.original_length()));
  theta.scaling = RopeScaling::kLlama3;
  theta.factor = llama3.factor();
  theta.low = llama3.low();
  theta.high = llama3.high();
  theta.original_length = llama3.original_length();
  return absl::OkStatus();
}

absl::Status ReadYarn(const v1::RopeSpec::Yarn& yarn, RopeTheta& theta) {
  KVTRIAGE_RETURN_IF_ERROR(CheckPositive("theta.yarn.factor", yarn.factor()));
  KVTRIAGE_RETURN_IF_ERROR(CheckPositive("theta.yarn.beta_fast", yarn.beta_fast()));
  KVTRIAGE_RETURN_IF_ERROR(CheckPositive("theta.yarn.beta_slow", yarn.beta_slow()));
  KVTRIAGE_RETURN_IF_ERROR(CheckLength("theta.yarn.original_length", yarn.original_length()));
  theta.scaling = RopeScaling::kYarn;
  theta.factor = yarn.factor();
  theta.beta_fast = yarn.beta_fast();
  theta.beta_slow = yarn.beta_slow();
  theta.original_length = yarn.original_length();
  return absl::OkStatus();
}

// Scalings whose speeds depend on the length of the text: no difference of positions corrects them.
absl::Status RefuseOther(v1::RopeSpec::OtherScaling other) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("theta.other", other, v1::RopeSpec::OtherScaling_IsValid));
  const char* const text = other == v1::RopeSpec::DYNAMIC_NTK ? "dynamic NTK scaling"
                           : other == v1::RopeSpec::LONGROPE  ? "LongRoPE scaling"
                                                              : "a scaling of unknown kind";
  return Error(ErrorReason::kRopeUnsupported, "theta.other", text);
}

absl::StatusOr<RopeTheta> ReadTheta(const v1::RopeSpec::ThetaSpeeds& speeds) {
  RopeTheta theta;
  theta.theta = speeds.theta();
  if (!(theta.theta > 1 && std::isfinite(theta.theta))) {
    return Invalid("theta.theta", "must be finite and above 1");
  }
  switch (speeds.scaling_case()) {
    case v1::RopeSpec::ThetaSpeeds::kLinear:
      KVTRIAGE_RETURN_IF_ERROR(CheckPositive("theta.linear.factor", speeds.linear().factor()));
      theta.scaling = RopeScaling::kLinear;
      theta.factor = speeds.linear().factor();
      break;
    case v1::RopeSpec::ThetaSpeeds::kLlama3:
      KVTRIAGE_RETURN_IF_ERROR(ReadLlama3(speeds.llama3(), theta));
      break;
    case v1::RopeSpec::ThetaSpeeds::kYarn:
      KVTRIAGE_RETURN_IF_ERROR(ReadYarn(speeds.yarn(), theta));
      break;
    case v1::RopeSpec::ThetaSpeeds::kOther:
      return RefuseOther(speeds.other());
    case v1::RopeSpec::ThetaSpeeds::SCALING_NOT_SET:
      break;
  }
  return theta;
}

absl::Status ReadSpeedList(const std::string& bytes, Rope& rope) {
  static_assert(std::endian::native == std::endian::little, "speeds are copied as they are");
  const uint64_t want = rope.rotary_dim / 2 * sizeof(double);
  if (bytes.size() != want) {
    return Error(ErrorReason::kFieldInvalid, "speeds_f64le", "needs rotary_dim/2 float64 values")
        .Got(bytes.size())
        .Limit(want);
  }
  rope.speeds.resize(rope.rotary_dim / 2);
  std::memcpy(rope.speeds.data(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status ReadSpeeds(const v1::RopeSpec& message, Rope& rope) {
  std::string_view field = "speeds_f64le";
  switch (message.speeds_case()) {
    case v1::RopeSpec::kTheta: {
      KVTRIAGE_ASSIGN_OR_RETURN(const RopeTheta theta, ReadTheta(message.theta()));
      rope.speeds = RopeSpeeds(theta, rope.rotary_dim);
      field = "theta";
      break;
    }
    case v1::RopeSpec::kSpeedsF64Le:
      KVTRIAGE_RETURN_IF_ERROR(ReadSpeedList(message.speeds_f64le(), rope));
      break;
    case v1::RopeSpec::SPEEDS_NOT_SET:
      return Missing("theta");
  }
  for (size_t j = 0; j < rope.speeds.size(); ++j) {
    if (std::abs(rope.speeds[j]) <= kMaxRopeSpeed) continue;  // false for NaN
    return Error(ErrorReason::kFieldInvalid, field, "a speed is not finite or above 1e6").Index(j);
  }
  return absl::OkStatus();
}

absl::Status ReadSections(const v1::RopeSpec& message, Rope& rope) {
  if (message.mrope_interleaved()) {
    return Error(ErrorReason::kRopeUnsupported, "mrope_interleaved", "interleaved M-RoPE sections");
  }
  const auto count = static_cast<size_t>(message.mrope_sections_size());
  if (count == 0) return absl::OkStatus();
  if (count != rope.sections.size()) {
    return Error(ErrorReason::kFieldInvalid, "mrope_sections", "needs three sections or none")
        .Got(count)
        .Limit(rope.sections.size());
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    rope.sections[i] = message.mrope_sections(static_cast<int>(i));
    sum += rope.sections[i];
  }
  if (sum == rope.rotary_dim / 2) return absl::OkStatus();
  return Error(ErrorReason::kGeometryInvalid, "mrope_sections", "do not add up to rotary_dim/2")
      .Got(sum)
      .Limit(rope.rotary_dim / 2);
}

absl::StatusOr<Rope> ParseRope(const v1::RopeSpec& message) {
  Rope rope;
  rope.rotary_dim = message.rotary_dim();
  rope.offset = message.rotary_offset();
  if (rope.rotary_dim > kMaxHeadSize || rope.offset > kMaxHeadSize) {
    const bool wide = rope.rotary_dim > kMaxHeadSize;
    return Error(ErrorReason::kGeometryInvalid, wide ? "rotary_dim" : "rotary_offset",
                 "wider than any row")
        .Got(wide ? rope.rotary_dim : rope.offset)
        .Limit(kMaxHeadSize);
  }
  if (rope.rotary_dim % 2 != 0) {
    return Error(ErrorReason::kFieldInvalid, "rotary_dim", "must be even").Got(rope.rotary_dim);
  }
  if (rope.rotary_dim == 0) return rope;
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("pairing", message.pairing(), v1::RopePairing_IsValid));
  rope.pairing = static_cast<RopePairing>(message.pairing());
  KVTRIAGE_RETURN_IF_ERROR(ReadSections(message, rope));
  KVTRIAGE_RETURN_IF_ERROR(ReadSpeeds(message, rope));
  if (message.attention_factor() != 0) {
    KVTRIAGE_RETURN_IF_ERROR(CheckPositive("attention_factor", message.attention_factor()));
    rope.attention_factor = message.attention_factor();
  }
  return rope;
}

}  // namespace

absl::StatusOr<std::vector<Rope>> ParseRopes(const v1::CacheSpec& cache) {
  const auto count = static_cast<uint32_t>(cache.ropes_size());
  if (count > kMaxRopesPerCache) {
    return Error(ErrorReason::kTooMany, "ropes", "too many ropes")
        .Got(count)
        .Limit(kMaxRopesPerCache);
  }
  std::vector<Rope> ropes;
  for (uint32_t i = 0; i < count; ++i) {
    auto rope = ParseRope(cache.ropes(static_cast<int>(i)));
    if (!rope.ok()) return UnderField(rope.status(), Indexed("ropes", i));
    ropes.push_back(*std::move(rope));
  }
  return ropes;
}

absl::Status CheckLayerRope(const std::vector<Rope>& ropes, const LayerSpec& layer) {
  if (layer.rope_index == 0) return absl::OkStatus();
  if (layer.rope_index > ropes.size()) {
    return Error(ErrorReason::kFieldInvalid, "rope_index", "the cache has no rope of this number")
        .Got(layer.rope_index)
        .Limit(ropes.size());
  }
  const Rope& rope = ropes[layer.rope_index - 1];
  const uint64_t end = uint64_t{rope.offset} + rope.rotary_dim;
  if (rope.rotary_dim == 0) return absl::OkStatus();
  const uint64_t v_end = uint64_t{layer.v_first_elem} + layer.v.layout.row_elems;
  if (layer.v_in_k && rope.offset < v_end && layer.v_first_elem < end) {
    return Error(ErrorReason::kGeometryInvalid, "rope_index", "rotated channels belong to V, too")
        .Got(rope.offset)
        .Limit(v_end);
  }
  if (end <= layer.k.layout.row_elems) return absl::OkStatus();
  return Error(ErrorReason::kGeometryInvalid, "rope_index",
               "rotated channels end outside the K row")
      .Got(end)
      .Limit(layer.k.layout.row_elems);
}

}  // namespace kvtriage
