#include "client/cli/policy_sources.h"

namespace kvtriage::cli {
namespace {

struct Source {
  std::string_view name, paper;
};

constexpr Source kBases[] = {
    {"streaming", "StreamingLLM, arXiv 2309.17453"},
    {"h2o", "H2O, arXiv 2306.14048"},
    {"tova", "TOVA, arXiv 2401.06104"},
    {"snapkv", "SnapKV, arXiv 2404.14469"},
    {"pyramidkv", "PyramidKV, arXiv 2406.02069"},
    {"adakv", "AdaKV, arXiv 2407.11550"},
    {"vatp", "VATP, arXiv 2406.12335"},
    {"criticalkv", "CriticalKV, arXiv 2502.03805"},
    {"keydiff", "KeyDiff, arXiv 2504.15364"},
    {"knorm", "L2 norm of keys, arXiv 2406.11430"},
    {"lagkv", "LagKV, arXiv 2504.04704"},
    {"expected-attention", "Expected Attention, arXiv 2510.00636"},
};
constexpr Source kVariants[] = {
    {"obc-value", "OBCache, arXiv 2510.07651"},
    {"obc-key", "OBCache, arXiv 2510.07651"},
    {"obc-joint", "OBCache, arXiv 2510.07651"},
    {"drop", "CAOTE, arXiv 2504.14051"},
};

template <size_t kCount>
std::string_view Find(const Source (&sources)[kCount], std::string_view name) {
  for (const Source& source : sources) {
    if (source.name == name) return source.paper;
  }
  return {};
}

}  // namespace

std::string PolicySource(std::string_view name) {
  const size_t plus = name.find('+');
  const std::string_view base = Find(kBases, name.substr(0, plus));
  if (base.empty()) return "this service's configuration";
  if (plus == std::string_view::npos) return std::string(base);
  return std::string(Find(kVariants, name.substr(plus + 1))) + " over " + std::string(base);
}

}  // namespace kvtriage::cli
