// What this process (or another) has open and mapped, as the kernel counts it.
#ifndef KVTRIAGE_TESTS_SUPPORT_PROCESS_TABLES_H_
#define KVTRIAGE_TESTS_SUPPORT_PROCESS_TABLES_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace kvtriage {

inline size_t CountDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// Mappings of files whose name holds `name`.
inline size_t CountMappings(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(name) != std::string::npos;
  return count;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_PROCESS_TABLES_H_
