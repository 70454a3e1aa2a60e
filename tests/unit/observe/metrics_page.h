// Reads a page of metrics in the text exposition format.
#ifndef KVTRIAGE_TESTS_UNIT_OBSERVE_METRICS_PAGE_H_
#define KVTRIAGE_TESTS_UNIT_OBSERVE_METRICS_PAGE_H_

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace kvtriage {

// Series ("name{label=\"value\"}") and their values.
inline std::map<std::string, double> SeriesOf(const std::string& page) {
  std::map<std::string, double> series;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const size_t space = line.rfind(' ');
    series[line.substr(0, space)] = std::atof(line.c_str() + space);
  }
  return series;
}

// Metric names with their types, from the TYPE lines.
inline std::map<std::string, std::string> TypesOf(const std::string& page) {
  std::map<std::string, std::string> types;
  std::istringstream lines(page);
  for (std::string word; lines >> word;) {
    if (word != "TYPE") continue;
    std::string name, type;
    lines >> name >> type;
    types[name] = type;
  }
  return types;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_OBSERVE_METRICS_PAGE_H_
