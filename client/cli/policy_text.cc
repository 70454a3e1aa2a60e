#include "client/cli/policy_text.h"

#include "absl/strings/str_cat.h"
#include "client/cli/policy_sources.h"

namespace kvtriage::cli {
namespace {

using client::PolicyParts;
using Json = nlohmann::ordered_json;

constexpr char kAbsent[] = "-";

std::string ScorerWord(const client::Scorer& scorer) {
  using Kind = client::Scorer::Kind;
  switch (scorer.kind) {
    case Kind::kAttention:
      return "attention";
    case Kind::kObcValue:
      return "obc-value";
    case Kind::kObcKey:
      return "obc-key";
    case Kind::kObcJoint:
      return "obc-joint";
    case Kind::kDrop:
      return "drop";
    case Kind::kVatp:
      return "vatp";
    case Kind::kRecency:
      return "recency";
    case Kind::kRandom:
      return "random";
    case Kind::kCritical:
      return "critical";
    case Kind::kKeyNorm:
      return "key-norm";
    case Kind::kKeyDiff:
      return "key-diff";
    case Kind::kLagKv:
      return "lagkv";
    case Kind::kExpectedAttention:
      return "expected-attention";
  }
  return kAbsent;
}

// The word, and the numbers that it needs.
std::string ScorerWords(const client::Scorer& scorer) {
  const std::string word = ScorerWord(scorer);
  if (scorer.kind == client::Scorer::Kind::kLagKv) return absl::StrCat(word, " ", scorer.lag);
  if (scorer.kind == client::Scorer::Kind::kExpectedAttention) {
    return absl::StrCat(word, " ", scorer.future);
  }
  if (scorer.kind != client::Scorer::Kind::kCritical) return word;
  return absl::StrCat(word, " ", scorer.first_stage);
}

std::string ReduceWord(client::Reduce reduce) {
  switch (reduce) {
    case client::Reduce::kSum:
      return "sum";
    case client::Reduce::kMean:
      return "mean";
    case client::Reduce::kMax:
      return "max";
    case client::Reduce::kPre:
      return "pre";
    case client::Reduce::kUnspecified:
      break;
  }
  return kAbsent;
}

std::string PoolWord(const client::Pool& pool) {
  switch (pool.kind) {
    case client::Pool::Kind::kNone:
      return "none";
    case client::Pool::Kind::kAvg:
      return absl::StrCat("avg ", pool.kernel);
    case client::Pool::Kind::kMax:
      return absl::StrCat("max ", pool.kernel);
    case client::Pool::Kind::kUnspecified:
      break;
  }
  return kAbsent;
}

std::string GranularityWord(client::Granularity granularity) {
  switch (granularity) {
    case client::Granularity::kPerHead:
      return "head";
    case client::Granularity::kPerLayer:
      return "layer";
    case client::Granularity::kPerSequence:
      return "sequence";
    case client::Granularity::kUnspecified:
      break;
  }
  return kAbsent;
}

std::string ProtectWords(const client::Protect& protect) {
  if (protect.recent == 0 && protect.recent_share == 0) {
    return protect.sinks > 0 ? absl::StrCat(protect.sinks, " first") : "nothing";
  }
  const std::string sinks = protect.sinks > 0 ? absl::StrCat(protect.sinks, " first, ") : "";
  if (protect.recent_share == 0) return absl::StrCat(sinks, protect.recent, " newest");
  const std::string least =
      protect.recent > 0 ? absl::StrCat(protect.recent, " newest or ") : "newest ";
  return absl::StrCat(sinks, least, protect.recent_share, " of the budget");
}

std::string WindowWord(const client::Window& window) {
  const std::string rows = window.all ? "all" : absl::StrCat("last ", window.last);
  const bool fades = window.decay != 0 && window.decay != 1;
  return fades ? absl::StrCat(rows, ", decay ", window.decay) : rows;
}

std::string LayersWord(const PolicyParts& parts) {
  if (!parts.budget) return "uniform";
  if (!parts.budget->explicit_layers.empty()) return "explicit";
  if (!parts.budget->pyramid_beta) return "uniform";
  return absl::StrCat("pyramid ", *parts.budget->pyramid_beta);
}

std::string HeadsWord(const PolicyParts& parts) {
  if (!parts.budget) return "uniform";
  if (!parts.budget->explicit_heads.empty()) return "explicit";
  if (!parts.budget->adaptive_alpha) return "uniform";
  return absl::StrCat("adaptive ", *parts.budget->adaptive_alpha);
}

Json ScorerNumbers(const client::Scorer& scorer) {
  if (scorer.kind == client::Scorer::Kind::kLagKv) return {{"lag", scorer.lag}};
  if (scorer.kind == client::Scorer::Kind::kExpectedAttention) {
    return {{"future", scorer.future}, {"epsilon", scorer.epsilon}};
  }
  if (scorer.kind != client::Scorer::Kind::kCritical) return Json::object();
  return {{"first_stage", scorer.first_stage}, {"epsilon", scorer.epsilon}};
}

}  // namespace

std::vector<std::string> PolicyColumns() {
  return {"policy",  "scorer", "window", "reduce",    "pool",
          "protect", "layers", "heads",  "a set per", "source"};
}

std::vector<std::string> PolicyCells(const client::Policy& policy) {
  const PolicyParts& parts = policy.parts;
  return {policy.name,
          parts.scorer ? ScorerWords(*parts.scorer) : kAbsent,
          parts.window ? WindowWord(*parts.window) : kAbsent,
          parts.reduce ? ReduceWord(*parts.reduce) : kAbsent,
          parts.pool ? PoolWord(*parts.pool) : kAbsent,
          parts.protect ? ProtectWords(*parts.protect) : kAbsent,
          LayersWord(parts),
          HeadsWord(parts),
          parts.granularity ? GranularityWord(*parts.granularity) : kAbsent,
          PolicySource(policy.name)};
}

nlohmann::ordered_json PolicyJson(const client::Policy& policy) {
  const PolicyParts& parts = policy.parts;
  Json json = {{"name", policy.name}};
  json["scorer"] = parts.scorer ? Json(ScorerWord(*parts.scorer)) : Json();
  if (parts.scorer) json.update(ScorerNumbers(*parts.scorer));
  json["window"] = parts.window ? Json(WindowWord(*parts.window)) : Json();
  json["reduce"] = parts.reduce ? Json(ReduceWord(*parts.reduce)) : Json();
  json["pool"] = parts.pool ? Json(PoolWord(*parts.pool)) : Json();
  json["protect"] = Json();
  if (parts.protect) {
    json["protect"] = {{"sinks", parts.protect->sinks},
                       {"recent", parts.protect->recent},
                       {"recent_share", parts.protect->recent_share}};
  }
  json["layers"] = LayersWord(parts);
  json["heads"] = HeadsWord(parts);
  json["granularity"] = parts.granularity ? Json(GranularityWord(*parts.granularity)) : Json();
  json["source"] = PolicySource(policy.name);
  return json;
}

}  // namespace kvtriage::cli
