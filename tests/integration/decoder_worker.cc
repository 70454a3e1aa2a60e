#include "tests/integration/decoder_worker.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"

namespace kvtriage::decoder {
namespace {

constexpr double kLogitError = 5e-4;  // float32 against float64 on logits of about 5

}  // namespace

DecoderWorker::DecoderWorker(const Weights& weights, uint32_t capacity, InputsWanted wanted) {
  absl::StatusOr<Decoder> decoder = Decoder::Create(weights, capacity, wanted);
  if (!decoder.ok()) std::abort();
  decoder_ = *std::move(decoder);
}

void DecoderWorker::LendTo(const ServiceProcess& service) {
  client::ConnectOptions options;
  options.endpoint = service.endpoint();
  auto connected = client::Session::Connect(options);
  ASSERT_TRUE(connected.ok()) << connected.status();
  session_ = *std::move(connected);
  const absl::Status lent = decoder_->Lend(*session_);
  ASSERT_TRUE(lent.ok()) << lent;
}

void DecoderWorker::Run(std::span<const int32_t> tokens) {
  absl::StatusOr<std::vector<float>> logits = decoder_->Run(tokens);
  ASSERT_TRUE(logits.ok()) << logits.status();
  logits_ = *std::move(logits);
}

std::vector<int32_t> DecoderWorker::Generate(uint32_t steps) {
  std::vector<int32_t> tokens;
  for (uint32_t step = 0; step < steps; ++step) {
    tokens.push_back(next());
    Run(std::span(tokens).last(1));
  }
  return tokens;
}

void DecoderWorker::ExpectSameSteps(PlainDecoder& masked, uint32_t steps) {
  for (uint32_t step = 0; step < steps; ++step) {
    const int32_t token = next();
    const Doubles want = masked.Step(token);
    Run({{token}});
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(logits_[i], want[i], kLogitError) << "step " << step << " logit " << i;
    }
    ASSERT_EQ(next(), std::max_element(want.begin(), want.end()) - want.begin()) << "step " << step;
  }
}

void DecoderWorker::Mask(PlainDecoder& masked, const client::KeptSets& kept) const {
  const ModelConfig& config = decoder_->transformer().config();
  for (uint32_t l = 0; l < config.layers; ++l) {
    for (uint32_t h = 0; h < config.kv_heads; ++h) {
      masked.Keep(l, h, kept.At(l, h));
      EXPECT_EQ(decoder_->kv().rows(l, h), kept.At(l, h).size());
    }
  }
}

void ExpectBest(std::span<const int32_t> kept, const Doubles& scores, uint32_t recent) {
  const size_t border = scores.size() - recent;
  double worst_kept = INFINITY, best_dropped = -INFINITY;
  for (size_t row = 0; row < scores.size(); ++row) {
    const bool is_kept = std::binary_search(kept.begin(), kept.end(), static_cast<int32_t>(row));
    if (row >= border) {
      EXPECT_TRUE(is_kept) << row;
    } else if (is_kept) {
      worst_kept = std::min(worst_kept, scores[row]);
    } else {
      best_dropped = std::max(best_dropped, scores[row]);
    }
  }
  EXPECT_GE(worst_kept, best_dropped - 1e-4 * std::abs(best_dropped));
}

}  // namespace kvtriage::decoder
