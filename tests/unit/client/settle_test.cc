#include "client/cpp/settle.h"

#include <vector>

#include "client/cpp/local_error.h"
#include "gtest/gtest.h"

namespace kvtriage::client {
namespace {

absl::Status FromService(absl::StatusCode code, const std::string& reason, bool unharmed) {
  ErrorDetails details;
  details.reason = reason;
  details.from_service = true;
  details.unharmed = unharmed;
  return StatusWithDetails(code, "text", details);
}

// A service whose answers to `resolve` are given; the stream breaks after them.
struct Script {
  std::vector<absl::Status> resolves;
  bool lost = false;
  bool quiet = true;
  int asked = 0;

  SettleSources Sources() {
    SettleSources sources;
    sources.resolve = [this](absl::Time) {
      const absl::Status status = resolves.at(static_cast<size_t>(asked++));
      if (static_cast<size_t>(asked) == resolves.size()) lost = true;
      return status;
    };
    sources.lost = [this] { return lost; };
    sources.quiet = [this] {
      if (!quiet) absl::SleepFor(absl::Milliseconds(1));
      return quiet;
    };
    return sources;
  }
  Verdict Settle(const absl::Status& error, int limit_ms = 5000) {
    return client::Settle(error, Sources(), absl::Now() + absl::Milliseconds(limit_ms));
  }
};

const absl::Status kCutOff = absl::DeadlineExceededError("gRPC's own");

TEST(Settle, TheServicesUnharmedIsEnough) {
  Script script;
  EXPECT_EQ(script.Settle(FromService(absl::StatusCode::kInvalidArgument, "table_too_short", true)),
            Verdict::kUnharmed);
  EXPECT_EQ(script.asked, 0);
}

TEST(Settle, ADeadlineIsResolvedBeforeAnythingIsSaid) {
  EXPECT_EQ((Script{{absl::OkStatus()}}.Settle(kCutOff)), Verdict::kAnswered);
  EXPECT_EQ((Script{{FromService(absl::StatusCode::kCancelled, "key_dead", true)}}.Settle(kCutOff)),
            Verdict::kUnharmed);
  EXPECT_EQ(
      (Script{{FromService(absl::StatusCode::kDataLoss, "move_failed", false)}}.Settle(kCutOff)),
      Verdict::kReadSlot);
  EXPECT_EQ(
      (Script{{FromService(absl::StatusCode::kFailedPrecondition, "result_expired", false)}}.Settle(
          kCutOff)),
      Verdict::kReadSlot);
}

TEST(Settle, AMoveThatFailedIsResolvedToo) {
  Script script{{FromService(absl::StatusCode::kDataLoss, "move_failed", false)}};
  EXPECT_EQ(script.Settle(FromService(absl::StatusCode::kDataLoss, "move_failed", false)),
            Verdict::kReadSlot);
  EXPECT_EQ(script.asked, 1);
}

// An UNHARMED that speaks of the question says nothing about the call.
TEST(Settle, BeingRefusedToAskIsNoAnswer) {
  for (const char* reason :
       {"session_unknown", "session_ended", "session_busy", "queue_full", "draining"}) {
    Script script{{FromService(absl::StatusCode::kUnavailable, reason, true), absl::OkStatus()}};
    EXPECT_EQ(script.Settle(kCutOff), Verdict::kAnswered) << reason;
    EXPECT_EQ(script.asked, 2) << reason;
  }
}

TEST(Settle, ALostStreamWaitsForTheEndAndReadsTheLedger) {
  Script script;
  script.lost = true;
  EXPECT_EQ(script.Settle(absl::UnavailableError("gone")), Verdict::kReadQuiet);
  Script breaks{{absl::UnavailableError("socket closed")}};
  EXPECT_EQ(breaks.Settle(absl::UnavailableError("gone")), Verdict::kReadQuiet);
}

TEST(Settle, WhatNeverGetsQuietIsUnknown) {
  Script script;
  script.lost = true;
  script.quiet = false;
  EXPECT_EQ(script.Settle(absl::UnavailableError("gone"), 30), Verdict::kUnknown);
}

}  // namespace
}  // namespace kvtriage::client
