#include "client/cpp/settle.h"

#include <optional>
#include <string>

#include "client/cpp/local_error.h"

namespace kvtriage::client {
namespace {

constexpr absl::Duration kResolvePause = absl::Milliseconds(5);

// Reasons that are about the question itself: being refused to ask is no answer.
bool RefusesToAnswer(const std::string& reason) {
  return reason.starts_with("session_") || reason == "queue_full" || reason == "draining" ||
         reason == "device_sick";
}

// What an error of `resolve` says about the call. Nothing when it says nothing.
std::optional<Verdict> VerdictOf(const absl::Status& status) {
  const std::optional<ErrorDetails> details = GetErrorDetails(status);
  if (!details.has_value() || !details->from_service) return std::nullopt;
  if (RefusesToAnswer(details->reason)) return std::nullopt;
  return details->unharmed ? Verdict::kUnharmed : Verdict::kReadSlot;
}

}  // namespace

Verdict Settle(const absl::Status& error, const SettleSources& sources, absl::Time deadline) {
  const std::optional<ErrorDetails> first = GetErrorDetails(error);
  if (first.has_value() && first->unharmed) return Verdict::kUnharmed;
  while (absl::Now() < deadline) {
    if (sources.lost()) {
      // A job that was running goes on to its end; the ledger is final after it, or after the
      // process.
      if (sources.quiet()) return Verdict::kReadQuiet;
      continue;
    }
    // The slot alone does not do: a job that still scores has not opened it and may move rows
    // later.
    const absl::Status status = sources.resolve(deadline);
    if (status.ok()) return Verdict::kAnswered;
    if (const std::optional<Verdict> verdict = VerdictOf(status)) return *verdict;
    absl::SleepFor(kResolvePause);
  }
  return Verdict::kUnknown;
}

}  // namespace kvtriage::client
