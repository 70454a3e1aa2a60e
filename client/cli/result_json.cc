#include "client/cli/result_json.h"

#include <cmath>

#include "nlohmann/json.hpp"

namespace kvtriage::cli {
namespace {

using Json = nlohmann::ordered_json;

// One number per KV head; null where not measured, and for each head that has no number.
Json Figures(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  Json list = Json::array();
  for (const double value : values)
    list.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
  return list;
}

}  // namespace

std::string RunsToJson(const std::vector<PolicyRun>& runs) {
  Json list = Json::array();
  for (const PolicyRun& run : runs) {
    Json layers = Json::array();
    for (const LayerRun& layer : run.layers) {
      layers.push_back({{"layer", layer.layer},
                        {"kept", layer.kept},
                        {"retained_mass", Figures(layer.retained_mass)},
                        {"output_error", Figures(layer.output_error)},
                        {"future_output_error", Figures(layer.future_output_error)},
                        {"oracle_recall", Figures(layer.oracle_recall)}});
    }
    list.push_back({{"policy", run.policy},
                    {"keep", run.keep},
                    {"layers", std::move(layers)},
                    {"milliseconds", run.milliseconds}});
  }
  return Json({{"runs", std::move(list)}}).dump();
}

}  // namespace kvtriage::cli
