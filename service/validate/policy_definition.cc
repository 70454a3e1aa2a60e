#include "service/validate/policy_definition.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "kernels/core/error.h"
#include "service/policy/named_policies.h"
#include "service/validate/policy_parts.h"

namespace kvtriage {
namespace {

constexpr size_t kMaxNameBytes = 32;

// Keeps the first complaint: what follows it is mostly its echo.
class FirstComplaint : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int /*line*/, int column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat("column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("expected PolicyParts as protobuf text, ", what));
}

}  // namespace

bool IsOwnPolicyName(std::string_view name) {
  const bool fits = !name.empty() && name.size() <= kMaxNameBytes &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                    });
  return fits && !ExpandPolicy(name).has_value();
}

absl::StatusOr<PolicySpec> ParsePolicyDefinition(std::string_view name, std::string_view text) {
  v1::PolicyParts parts;
  FirstComplaint complaint;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&complaint);
  if (!parser.ParseFromString(std::string(text), &parts)) return Wrong(complaint.text());
  if (parts.budget().amount_case() != v1::Budget::AMOUNT_NOT_SET) {
    return Wrong("budget: the amount comes with each request");
  }
  // Any amount will do to check the rest; explicit counts take its place.
  v1::Budget& budget = *parts.mutable_budget();
  const bool has_counts = budget.has_explicit_layers() || budget.has_explicit_heads();
  if (!has_counts) budget.set_kept_ratio(1.0);
  absl::StatusOr<PolicySpec> policy = ParsePolicyParts(parts);
  if (!policy.ok()) {
    const auto info = GetErrorInfo(policy.status());
    return Wrong(
        absl::StrCat(info ? info->field + ": " : "", std::string(policy.status().message())));
  }
  policy->budget.kept_ratio.reset();
  policy->name = std::string(name);
  return policy;
}

std::string PolicyDefinitionText(const PolicySpec& policy) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(PolicyPartsOf(policy), &text);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace kvtriage
