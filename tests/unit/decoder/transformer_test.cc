// The parts of the transformer, and all of it, against float64 loops.
#include <algorithm>
#include <cmath>
#include <random>

#include "client/cpp/example/decoder/decoder.h"
#include "gtest/gtest.h"
#include "tests/support/plain_decoder.h"
#include "tests/support/small_model.h"

namespace kvtriage::decoder {
namespace {

std::vector<float> Noise(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Multiply, IsAMatrixProductAndARowsResultDoesNotDependOnItsNeighbours) {
  // Widths on both sides of the lanes of the inner product.
  for (const uint32_t in : {1u, 7u, 16u, 31u, 48u, 129u}) {
    Matrix matrix{5, in, Noise(in, size_t{5} * in)};
    const std::vector<float> x = Noise(in + 1, size_t{3} * in);
    const std::vector<float> y = Multiply(matrix, x);
    ASSERT_EQ(y.size(), 15u);
    for (size_t r = 0; r < 3; ++r) {
      for (size_t o = 0; o < 5; ++o) {
        double want = 0;
        for (size_t i = 0; i < in; ++i) want += double{matrix.values[o * in + i]} * x[r * in + i];
        EXPECT_NEAR(y[r * 5 + o], want, 1e-5 * std::sqrt(in)) << "in " << in;
      }
    }
    const std::vector<float> alone = Multiply(matrix, std::span(x).subspan(in, in));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + 5));
  }
}

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  // mean((3, 4)^2) = 12.5, plus 3.5: root 4.
  EXPECT_EQ(RmsNorm(std::vector<float>{3, 4}, std::vector<float>{1, 2}, 3.5),
            (std::vector<float>{0.75, 2}));
  const std::vector<float> zero(4), weight(4, 1);
  EXPECT_EQ(RmsNorm(zero, weight, 1e-5), zero);
}

TEST(Rotary, TurnsHalfSplitPairsByTheirPosition) {
  constexpr uint32_t kSize = 8;
  const Rotary rotary(100, kSize);
  const std::vector<int32_t> positions = {0, 3, 100000};
  const std::vector<float> before = Noise(5, positions.size() * 2 * kSize);
  std::vector<float> after = before;
  rotary.Turn(after, positions);
  for (size_t r = 0; r < positions.size(); ++r) {
    for (size_t head = 0; head < 2; ++head) {
      for (size_t j = 0; j < kSize / 2; ++j) {
        const double angle = positions[r] * std::pow(100.0, -2.0 * static_cast<double>(j) / kSize);
        const size_t a = (r * 2 + head) * kSize + j, b = a + kSize / 2;
        EXPECT_NEAR(after[a], before[a] * std::cos(angle) - before[b] * std::sin(angle), 1e-6);
        EXPECT_NEAR(after[b], before[b] * std::cos(angle) + before[a] * std::sin(angle), 1e-6);
      }
    }
  }
}

TEST(Attend, GivesEveryRowAndHeadItsOwnLimit) {
  constexpr uint32_t kRows = 3, kQueryHeads = 4, kHeads = 2, kSize = 6, kSlots = 9;
  const std::vector<float> queries = Noise(1, kRows * kQueryHeads * kSize),
                           keys = Noise(2, kHeads * kSlots * kSize),
                           values = Noise(3, kHeads * kSlots * kSize);
  const CachedRows cached{keys.data(), values.data(), kSlots * kSize, kHeads, kSize};
  const std::vector<int32_t> limits = {1, 9, 4, 2, 9, 1};
  const std::vector<float> out = Attend(queries, kQueryHeads, cached, limits);
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t h = 0; h < kQueryHeads; ++h) {
      const size_t head = h / 2, at = (row * kQueryHeads + h) * kSize;
      double sum = 0, want[kSize] = {};
      for (size_t slot = 0; slot < static_cast<size_t>(limits[row * kHeads + head]); ++slot) {
        double dot = 0;
        const size_t from = (head * kSlots + slot) * kSize;
        for (size_t c = 0; c < kSize; ++c) dot += double{queries[at + c]} * keys[from + c];
        const double weight = std::exp(dot / std::sqrt(static_cast<double>(kSize)));
        sum += weight;
        for (size_t c = 0; c < kSize; ++c) want[c] += weight * values[from + c];
      }
      for (size_t c = 0; c < kSize; ++c) EXPECT_NEAR(out[at + c], want[c] / sum, 1e-5);
    }
  }
}

void ExpectNear(const std::vector<float>& got, const Doubles& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-4) << "logit " << i;
}

// A prompt at once, in parts, and token by token: the same rows, so the same bits; and what float64
// says.
TEST(Decoder, PrefillChunksAndStepsAgree) {
  for (const bool tied : {false, true}) {
    ModelConfig config = SmallConfig();
    config.tied_head = tied;
    const Weights weights = RandomWeights(config, 11);
    const std::vector<int32_t> prompt = SmallPrompt(7, 40);
    const auto run = [&](uint32_t rows_at_once) {
      absl::StatusOr<Decoder> decoder = Decoder::Create(weights, 64, {});
      EXPECT_TRUE(decoder.ok()) << decoder.status();
      std::vector<float> logits;
      for (size_t at = 0; at < prompt.size(); at += rows_at_once) {
        const size_t rows = std::min<size_t>(rows_at_once, prompt.size() - at);
        logits = decoder->Run(std::span(prompt).subspan(at, rows)).value();
      }
      return logits;
    };
    const std::vector<float> whole = run(40);
    ExpectNear(whole, PlainDecoder(weights).Run(prompt));
    EXPECT_EQ(run(13), whole);
    EXPECT_EQ(run(1), whole);
  }
}

TEST(Decoder, RefusesWhatItCannotRunAndChangesNothing) {
  const Weights weights = RandomWeights(SmallConfig(), 1);
  absl::StatusOr<Decoder> decoder = Decoder::Create(weights, 4, {});
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  ASSERT_TRUE(decoder->Run(std::vector<int32_t>{1, 2, 3}).ok());
  EXPECT_EQ(decoder->Run({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decoder->Run(std::vector<int32_t>{97}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decoder->Run(std::vector<int32_t>{-1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(decoder->Run(std::vector<int32_t>{1, 2}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(decoder->tokens().size(), 3u);
  EXPECT_EQ(decoder->kv().longest(), 3u);
  EXPECT_TRUE(decoder->Run(std::vector<int32_t>{5}).ok());
}

TEST(Decoder, RecomputeGivesTheSameRows) {
  const Weights weights = RandomWeights(SmallConfig(), 2);
  absl::StatusOr<Decoder> decoder = Decoder::Create(weights, 32, {});
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  ASSERT_TRUE(decoder->Run(SmallPrompt(3, 20)).ok());
  const auto bytes = decoder->kv().memory().bytes();
  const std::vector<std::byte> before(bytes.begin(), bytes.end());
  std::fill(bytes.begin(), bytes.end(), std::byte{0x7F});  // NaN wherever it is read
  decoder->Recompute();
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (uint32_t slot = 0; slot < 20; ++slot) {
      const auto* const key = reinterpret_cast<std::byte*>(decoder->kv().Key(layer, 1, slot));
      EXPECT_TRUE(std::equal(key, key + 64, before.begin() + (key - bytes.data())));
    }
  }
  EXPECT_EQ(decoder->sequence().generation, 1u);
}

}  // namespace
}  // namespace kvtriage::decoder
