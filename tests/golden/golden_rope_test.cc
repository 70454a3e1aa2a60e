// Rotated keys against the float64 goldens: every pairing, scaling, angle mode, input type and
// cache layout, on every device; and kept rows that are renumbered.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/rope_speeds.h"
#include "tests/golden/device_share.h"
#include "tests/golden/golden_file.h"
#include "tests/support/golden_inputs.h"
#include "tests/support/placed_cache.h"

namespace kvtriage {
namespace {

using nlohmann::json;

struct TypeCase {
  const char* name;
  DType type;
  double rounding;  // relative, of one store
};
constexpr TypeCase kTypes[] = {
    {"f32", DType::kF32, 0}, {"f16", DType::kF16, 0x1p-11}, {"bf16", DType::kBF16, 0x1p-8}};

RopeTheta ThetaOf(const GoldenFile& file) {
  RopeTheta theta;
  theta.theta = file["theta"];
  const json& scaling = file["scaling"];
  const std::string kind = scaling.at("kind");
  if (kind == "linear") theta.scaling = RopeScaling::kLinear;
  if (kind == "llama3") theta.scaling = RopeScaling::kLlama3;
  if (kind == "yarn") theta.scaling = RopeScaling::kYarn;
  theta.factor = scaling.value("factor", 1.0);
  theta.low = scaling.value("low", 1.0);
  theta.high = scaling.value("high", 4.0);
  theta.beta_fast = scaling.value("beta_fast", 32.0);
  theta.beta_slow = scaling.value("beta_slow", 1.0);
  theta.original_length = scaling.value("original", 8192u);
  return theta;
}

// Rows of one head of a cache against `want` [rows, channels].
void ExpectRows(const PlacedCache& cache, uint32_t head, uint32_t rows, const double* want,
                double of_norm, double rounding) {
  const KvView& keys = cache.layer().k;
  const uint32_t d = keys.layout.row_elems;
  for (uint32_t p = 0; p < rows; ++p) {
    const std::byte* const row = RowAddress(keys, cache.layer().sequence, head, p);
    double squares = 0;
    for (uint32_t e = 0; e < d; ++e) squares += want[p * d + e] * want[p * d + e];
    for (uint32_t e = 0; e < d; ++e) {
      const double exact = want[p * d + e];
      const double tolerance = of_norm * std::sqrt(squares) + rounding * std::abs(exact);
      ASSERT_NEAR(LoadElement(row + e * keys.layout.elem_stride, keys.layout.dtype), exact,
                  tolerance)
          << "row " << p << " channel " << e;
    }
  }
}

class GoldenRope : public testing::TestWithParam<std::tuple<Device, std::string, TypeCase>> {};

TEST_P(GoldenRope, EveryLayoutAndAngleModeIsTheReferences) {
  const auto& [device, id, type] = GetParam();
  const GoldenFile file(id);
  const std::unique_ptr<Backend> backend = MakeDeviceBackend(device);
  const uint32_t rows = file["shape"].at("N"), d = file["shape"].at("d");
  const uint64_t number = file["case_number"];
  const std::vector<float> keys = GridValues(number * 1000 + 2, size_t{rows} * d);
  Rope rope;
  rope.pairing = file["pairing"] == "half" ? RopePairing::kHalf : RopePairing::kInterleaved;
  rope.rotary_dim = file["rotary_dim"];
  rope.offset = file["offset"];
  rope.speeds = RopeSpeeds(ThetaOf(file), rope.rotary_dim);
  const std::vector<int32_t> from = file.Rows(file["old"]), to = file.Rows(file["new"]);
  for (const json& answer : file["answers"]) {
    const std::vector<double> want = file.Doubles(answer.at("keys"));
    for (const CacheLayout& layout : kCacheLayouts) {
      SCOPED_TRACE(testing::Message() << layout.name << ", " << answer.at("mode"));
      const PlacedCache cache(layout, type.type, 1, 1, rows, keys, keys);
      RotateRequest request;
      request.keys = {cache.layer().k};
      request.rows = cache.layer().sequence;
      request.count = rows;
      request.rope = &rope;
      request.mode = answer.at("mode") == "exact" ? AngleMode::kExact : AngleMode::kFp32Table;
      request.from = {0, from.data(), rows};
      request.to = {0, to.data(), rows};
      RotateResult result;
      ASSERT_TRUE(backend->Rotate({&request, 1}, result).ok());
      ExpectRows(cache, 0, rows, want.data(), file["tolerance_of_norm"], type.rounding);
    }
  }
}

class GoldenRerotate : public testing::TestWithParam<std::tuple<Device, TypeCase>> {};

TEST_P(GoldenRerotate, KeptRowsGetPositionsFromZeroOn) {
  const auto& [device, type] = GetParam();
  if (!Affords(device, CaseSize::kSmall)) GTEST_SKIP() << "too slow for this build";
  const GoldenFile file("rerotate-S");
  const uint32_t rows = file["shape"].at("N"), d = file["shape"].at("d"),
                 heads = file["shape"].at("Hk");
  const uint64_t number = file["case_number"];
  const std::vector<float> keys = GridValues(number * 1000 + 2, size_t{heads} * rows * d);
  const double theta = file["theta"];
  const Rope rope{.rotary_dim = d, .speeds = RopeSpeeds({.theta = theta}, d)};
  const std::vector<int32_t> from = file.Rows(file["old"]);
  const std::vector<std::vector<int32_t>> kept = file.Lists(file["kept"]);
  const auto count = static_cast<uint32_t>(kept[0].size());
  const std::vector<double> want = file.Doubles(file["keys"]);
  for (const CacheLayout& layout : kCacheLayouts) {
    SCOPED_TRACE(layout.name);
    const PlacedCache cache(layout, type.type, heads, heads, rows, keys, keys);
    const auto backend = MakeDeviceBackend(device);
    const SequenceRows all = cache.layer().sequence;
    MoveRequest move{cache.layer().k, all, cache.layer().k, all, {kept[0], kept[1]}};
    move.to_rows.rows = count;
    MoveResult moved;
    ASSERT_TRUE(backend->Move({&move, 1}, moved).ok());
    RotateRequest request;
    request.keys = {cache.layer().k};
    request.rows = all;
    request.count = count;
    request.rope = &rope;
    request.from = {0, from.data(), rows};
    request.from_rows = {kept[0], kept[1]};
    RotateResult result;
    ASSERT_TRUE(backend->Rotate({&request, 1}, result).ok());
    for (uint32_t h = 0; h < heads; ++h) {
      ExpectRows(cache, h, count, want.data() + size_t{h} * count * d, file["tolerance_of_norm"],
                 type.rounding);
    }
  }
}

std::string Clean(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Devices, GoldenRope,
                         testing::Combine(testing::ValuesIn(kDevices),
                                          testing::ValuesIn(GoldenIds("rope")),
                                          testing::ValuesIn(kTypes)),
                         [](const testing::TestParamInfo<GoldenRope::ParamType>& info) {
                           return std::string(DeviceLabel(std::get<0>(info.param))) + "_" +
                                  Clean(std::get<1>(info.param) + "_" +
                                        std::get<2>(info.param).name);
                         });
INSTANTIATE_TEST_SUITE_P(Devices, GoldenRerotate,
                         testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(kTypes)),
                         [](const testing::TestParamInfo<GoldenRerotate::ParamType>& info) {
                           return std::string(DeviceLabel(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace kvtriage
