// Fixture of tests of the scorer by query rows: the same requests and the same right answers on
// every instruction set of the CPU and on the CUDA kernels in the emulator.
#ifndef KVTRIAGE_TESTS_UNIT_KERNELS_SCORE_DEVICE_H_
#define KVTRIAGE_TESTS_UNIT_KERNELS_SCORE_DEVICE_H_

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "tests/support/each_device.h"
#include "tests/support/plain_score.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {

inline constexpr Scorer kRowScorers[] = {Scorer::kAttention, Scorer::kObcValue, Scorer::kObcKey,
                                         Scorer::kObcJoint,  Scorer::kDrop,     Scorer::kVatp};
inline constexpr AttentionSource kRowSources[] = {
    AttentionSource::kQuery, AttentionSource::kQueryOutput, AttentionSource::kReady};

inline std::string Name(Scorer scorer, AttentionSource source, Reduce reduce = Reduce::kSum) {
  return "scorer " + std::to_string(static_cast<int>(scorer)) + ", source " +
         std::to_string(static_cast<int>(source)) + ", reduce " +
         std::to_string(static_cast<int>(reduce));
}

class ScoreDevice : public EachDevice {
 protected:
  ScoreResult Score(const ScoreRequest& request, int threads = 2) {
    return ScoreOne(request, threads);
  }

  // The error that a request must give.
  ErrorInfo ScoreError(const ScoreRequest& request) {
    std::vector<ScoreResult> results;
    const absl::Status status = EachDevice::Score({&request, 1}, results);
    const std::optional<ErrorInfo> info = GetErrorInfo(status);
    EXPECT_TRUE(info.has_value()) << status;
    return info.value_or(ErrorInfo{});
  }

  // Of a long list of cases the emulator takes every so many, others in every test: a fiber per
  // thread costs more than the arithmetic. The CPU takes all.
  bool Skips() { return !on_cpu() && turn_++ % (kSlowFibers ? 97 : 7) != 0; }

  // Of tests whose largest grid has more than 10,000 threads: ThreadSanitizer cannot map the stacks
  // of so many fibers.
  bool HasTooManyFibers() const { return !on_cpu() && kSlowFibers; }

  // Every instruction set of the CPU; on the emulated device one schedule, the next in turn.
  template <class Check>
  void OneWay(Check check) {
    if (on_cpu()) return ForEachTarget(check);
    const uint64_t seed = turn_ / 7 % 4;
    SCOPED_TRACE(testing::Message() << "schedule " << seed);
    emulation::SetOptions({.seed = seed});
    check();
  }

  // Equal to the float64 oracle within the specified bounds.
  void ExpectPlainScores(const ScoreRequest& request) {
    if (Skips()) return;
    const PlainScores plain = PlainScore(request);
    OneWay([&] { EXPECT_EQ(Difference(Score(request), plain), ""); });
  }

  // Calls check(request) for every scorer and source, one way each.
  template <class Check>
  void ForEachScorer(ScoreProblem& problem, Check check) {
    for (const Scorer scorer : kRowScorers) {
      for (const AttentionSource source : kRowSources) {
        if (Skips()) continue;
        SCOPED_TRACE(Name(scorer, source));
        const ScoreRequest request = problem.Request(source, {.scorer = scorer});
        OneWay([&] { check(request); });
        if (HasFailure()) return;
      }
    }
  }

 private:
  static inline uint32_t turn_ = 0;  // of all tests, so that they take different cases
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_KERNELS_SCORE_DEVICE_H_
