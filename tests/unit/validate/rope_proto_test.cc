// Rotary data of a registration, and positions: what is accepted, and what each malformed one gets.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/validate/compress_proto.h"
#include "service/validate/positions_proto.h"
#include "service/validate/region_proto.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

using Request = v1::RegisterRegionsRequest;
using Reason = ErrorReason;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

v1::CacheSpec& Cache(Request& r) { return *r.mutable_caches(0)->mutable_spec(); }
v1::RopeSpec& RopeOf(Request& r) { return *Cache(r).mutable_ropes(0); }
v1::RopeSpec::ThetaSpeeds& Theta(Request& r) { return *RopeOf(r).mutable_theta(); }

std::string Float64Bytes(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

absl::StatusOr<CacheSpec> Parse(const Request& request) {
  auto spec = ParseRegister(request, Limits());
  if (!spec.ok()) return spec.status();
  return spec->caches[0].spec;
}

TEST(ParseRope, GivesTheSpeeds) {
  const auto spec = Parse(ValidRegister());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->RopeOf(0), nullptr);
  const Rope* const rope = spec->RopeOf(1);
  ASSERT_NE(rope, nullptr);
  EXPECT_EQ(rope->pairing, RopePairing::kInterleaved);
  EXPECT_EQ(rope->rotary_dim, 32u);
  EXPECT_EQ(rope->offset, 16u);
  EXPECT_EQ(rope->attention_factor, 1.0);
  EXPECT_EQ(rope->planes(), 1u);
  ASSERT_EQ(rope->speeds.size(), 16u);
  EXPECT_NEAR(rope->speeds[4], 0.1, 1e-15);
}

TEST(ParseRope, TakesEveryScalingAndAList) {
  Request request = ValidRegister();
  Theta(request).mutable_linear()->set_factor(2);
  EXPECT_EQ(Parse(request)->RopeOf(1)->speeds[0], 0.5);
  auto& llama3 = *Theta(request).mutable_llama3();
  llama3.set_factor(8);
  llama3.set_low(1);
  llama3.set_high(4);
  llama3.set_original_length(8192);
  EXPECT_NEAR(Parse(request)->RopeOf(1)->speeds[15], std::pow(1e4, -30.0 / 32) / 8, 1e-18);
  auto& yarn = *Theta(request).mutable_yarn();
  yarn.set_factor(4);
  yarn.set_beta_fast(32);
  yarn.set_beta_slow(1);
  yarn.set_original_length(4096);
  RopeOf(request).set_attention_factor(1.2);
  EXPECT_NEAR(Parse(request)->RopeOf(1)->speeds[15], std::pow(1e4, -30.0 / 32) / 4, 1e-18);
  EXPECT_EQ(Parse(request)->RopeOf(1)->attention_factor, 1.2);
  std::vector<double> speeds(16, 0.25);
  RopeOf(request).set_speeds_f64le(Float64Bytes(speeds));
  EXPECT_EQ(Parse(request)->RopeOf(1)->speeds, speeds);
  for (const uint32_t section : {8, 4, 4}) RopeOf(request).add_mrope_sections(section);
  EXPECT_EQ(Parse(request)->RopeOf(1)->planes(), 3u);
}

TEST(ParseRope, WithoutRotatedChannelsNothingElseIsNeeded) {
  Request request = ValidRegister();
  RopeOf(request) = v1::RopeSpec();
  const auto spec = Parse(request);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->RopeOf(1), nullptr);
}

// Kinds: unsupported scaling ignored; partial rotary ignored; multi-axis positions.
// https://github.com/LMCache/LMCache/issues/242 https://github.com/UCSB-NLP-Chang/KVLink/issues/1
// https://github.com/AI-Hypercomputer/maxtext/pull/4615
// https://github.com/tetherto/qvac-fabric-llm.cpp/pull/146
TEST(RopeRefusals, NameTheField) {
  const struct {
    const char* name;
    std::function<void(Request&)> change;
    absl::StatusCode code;
    Reason reason;
    const char* field;
  } rows[] = {
      {"9 ropes",
       [](Request& r) {
         while (Cache(r).ropes_size() < 9) Cache(r).add_ropes();
       },
       kInvalid, Reason::kTooMany, "ropes"},
      {"no such rope", [](Request& r) { Cache(r).mutable_layers(1)->set_rope_index(2); }, kInvalid,
       Reason::kFieldInvalid, "layers[1].rope_index"},
      {"no pairing", [](Request& r) { RopeOf(r).clear_pairing(); }, kInvalid,
       Reason::kEnumUnspecified, "ropes[0].pairing"},
      {"unknown pairing",
       [](Request& r) { RopeOf(r).set_pairing(static_cast<v1::RopePairing>(3)); }, kInvalid,
       Reason::kEnumUnspecified, "ropes[0].pairing"},
      {"odd", [](Request& r) { RopeOf(r).set_rotary_dim(31); }, kInvalid, Reason::kFieldInvalid,
       "ropes[0].rotary_dim"},
      {"wider than any row", [](Request& r) { RopeOf(r).set_rotary_dim(578); }, kInvalid,
       Reason::kGeometryInvalid, "ropes[0].rotary_dim"},
      {"offset that wraps", [](Request& r) { RopeOf(r).set_rotary_offset(0xFFFFFFF0u); }, kInvalid,
       Reason::kGeometryInvalid, "ropes[0].rotary_offset"},
      {"past the row", [](Request& r) { RopeOf(r).set_rotary_offset(34); }, kInvalid,
       Reason::kGeometryInvalid, "layers[1].rope_index"},
      {"no speeds", [](Request& r) { RopeOf(r).clear_speeds(); }, kInvalid, Reason::kFieldMissing,
       "ropes[0].theta"},
      {"no theta", [](Request& r) { Theta(r).clear_theta(); }, kInvalid, Reason::kFieldInvalid,
       "ropes[0].theta.theta"},
      {"theta 1", [](Request& r) { Theta(r).set_theta(1); }, kInvalid, Reason::kFieldInvalid,
       "ropes[0].theta.theta"},
      {"theta NaN", [](Request& r) { Theta(r).set_theta(kNan); }, kInvalid, Reason::kFieldInvalid,
       "ropes[0].theta.theta"},
      {"linear 0", [](Request& r) { Theta(r).mutable_linear(); }, kInvalid, Reason::kFieldInvalid,
       "ropes[0].theta.linear.factor"},
      {"speeds too fast", [](Request& r) { Theta(r).mutable_linear()->set_factor(1e-300); },
       kInvalid, Reason::kFieldInvalid, "ropes[0].theta"},
      {"llama3 low = high",
       [](Request& r) {
         auto& llama3 = *Theta(r).mutable_llama3();
         llama3.set_factor(8);
         llama3.set_low(4);
         llama3.set_high(4);
       },
       kInvalid, Reason::kFieldInvalid, "ropes[0].theta.llama3.high"},
      {"llama3 without a length",
       [](Request& r) {
         auto& llama3 = *Theta(r).mutable_llama3();
         llama3.set_factor(8);
         llama3.set_low(1);
         llama3.set_high(4);
       },
       kInvalid, Reason::kFieldInvalid, "ropes[0].theta.llama3.original_length"},
      {"yarn without beta_slow",
       [](Request& r) {
         Theta(r).mutable_yarn()->set_factor(4);
         Theta(r).mutable_yarn()->set_beta_fast(32);
       },
       kInvalid, Reason::kFieldInvalid, "ropes[0].theta.yarn.beta_slow"},
      {"dynamic NTK", [](Request& r) { Theta(r).set_other(v1::RopeSpec::DYNAMIC_NTK); },
       kUnimplemented, Reason::kRopeUnsupported, "ropes[0].theta.other"},
      {"LongRoPE", [](Request& r) { Theta(r).set_other(v1::RopeSpec::LONGROPE); }, kUnimplemented,
       Reason::kRopeUnsupported, "ropes[0].theta.other"},
      {"other scaling of no kind",
       [](Request& r) { Theta(r).set_other(v1::RopeSpec::OTHER_SCALING_UNSPECIFIED); }, kInvalid,
       Reason::kEnumUnspecified, "ropes[0].theta.other"},
      {"15 speeds",
       [](Request& r) { RopeOf(r).set_speeds_f64le(Float64Bytes(std::vector<double>(15, 1.0))); },
       kInvalid, Reason::kFieldInvalid, "ropes[0].speeds_f64le"},
      {"NaN speed",
       [](Request& r) { RopeOf(r).set_speeds_f64le(Float64Bytes(std::vector<double>(16, kNan))); },
       kInvalid, Reason::kFieldInvalid, "ropes[0].speeds_f64le"},
      {"attention factor", [](Request& r) { RopeOf(r).set_attention_factor(-1); }, kInvalid,
       Reason::kFieldInvalid, "ropes[0].attention_factor"},
      {"two sections",
       [](Request& r) {
         RopeOf(r).add_mrope_sections(8);
         RopeOf(r).add_mrope_sections(8);
       },
       kInvalid, Reason::kFieldInvalid, "ropes[0].mrope_sections"},
      {"sections of 15",
       [](Request& r) {
         for (const uint32_t section : {5, 5, 5}) RopeOf(r).add_mrope_sections(section);
       },
       kInvalid, Reason::kGeometryInvalid, "ropes[0].mrope_sections"},
      {"interleaved sections", [](Request& r) { RopeOf(r).set_mrope_interleaved(true); },
       kUnimplemented, Reason::kRopeUnsupported, "ropes[0].mrope_interleaved"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Request request = ValidRegister();
    row.change(request);
    ExpectRefusal(Parse(request).status(), row.code, row.reason,
                  std::string("caches[0].spec.") + row.field);
  }
}

TEST(ParsePositions, FirstOrList) {
  v1::Positions positions;
  positions.set_first_position(7);
  EXPECT_EQ(ParsePositions(positions, 3)->first, 7u);
  positions.mutable_list()->set_inline_le(Int32Bytes({5, 2, 9}));
  EXPECT_THAT(ParsePositions(positions, 3)->list, testing::ElementsAre(5, 2, 9));
  EXPECT_EQ(ParsePositions(positions, 1)->list.size(), 3u);  // three planes of one row
}

TEST(PositionRefusals, NameTheField) {
  v1::Positions positions;
  ExpectRefusal(ParsePositions(positions, 3).status(), kInvalid, Reason::kFieldMissing, "");
  positions.set_first_position((uint64_t{1} << 31) - 3);
  EXPECT_TRUE(ParsePositions(positions, 3).ok());
  positions.set_first_position((uint64_t{1} << 31) - 2);
  ExpectRefusal(ParsePositions(positions, 3).status(), kInvalid, Reason::kFieldInvalid,
                "first_position");
  positions.set_first_position(~uint64_t{0});
  ExpectRefusal(ParsePositions(positions, 3).status(), kInvalid, Reason::kFieldInvalid,
                "first_position");
  positions.mutable_list()->set_inline_le("123");
  ExpectRefusal(ParsePositions(positions, 3).status(), kInvalid, Reason::kFieldInvalid, "list");
  positions.mutable_list()->set_inline_le(Int32Bytes({1, 2, 3, 4}));
  ExpectRefusal(ParsePositions(positions, 3).status(), kInvalid, Reason::kFieldInvalid, "list");
  positions.mutable_list()->set_inline_le(Int32Bytes(std::vector<int32_t>(10, 1)));
  ExpectRefusal(ParsePositions(positions, 3).status(), kInvalid, Reason::kTooMany, "list");
  positions.mutable_list()->set_inline_le(Int32Bytes({1, -1, 3}));
  const auto negative = ParsePositions(positions, 3).status();
  ExpectRefusal(negative, kInvalid, Reason::kFieldInvalid, "list");
  EXPECT_EQ(GetErrorInfo(negative)->index, 1u);
}

TEST(ParseSequence, PositionsAreOfTheCachedRows) {
  v1::CompressRequest request = ValidCompress();
  request.mutable_sequences(0)->mutable_positions()->set_first_position(4);
  request.mutable_sequences(1)->mutable_positions()->mutable_list()->set_inline_le(
      Int32Bytes({1, 2}));
  const absl::Status status = ParseCompress(request, Limits(), PolicyDefaults()).status();
  ExpectRefusal(status, kInvalid, Reason::kFieldInvalid, "sequences[1].positions.list");
}

}  // namespace
}  // namespace kvtriage
