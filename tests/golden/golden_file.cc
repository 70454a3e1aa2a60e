#include "tests/golden/golden_file.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace kvtriage {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::abort();
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string TestDataPath(const std::string& name) {
  return std::string(KVTRIAGE_SOURCE_DIR) + "/tests/data/" + name;
}

GoldenFile::GoldenFile(const std::string& id)
    : head_(nlohmann::json::parse(ReadAll(TestDataPath("golden/" + id + ".json")))),
      bytes_(ReadAll(TestDataPath("golden/" + id + ".bin"))) {}

template <typename T>
std::vector<T> GoldenFile::Read(const nlohmann::json& blob, const char* dtype) const {
  const nlohmann::json& entry = head_.at("blobs").at(blob.get<size_t>());
  const size_t offset = entry.at("offset"), size = entry.at("bytes");
  if (entry.at("dtype") != dtype || size % sizeof(T) != 0 || offset + size > bytes_.size()) {
    std::fprintf(stderr, "%s: bad blob\n", head_.at("id").get<std::string>().c_str());
    std::abort();
  }
  std::vector<T> values(size / sizeof(T));
  if (size > 0) std::memcpy(values.data(), bytes_.data() + offset, size);
  return values;
}

std::vector<double> GoldenFile::Doubles(const nlohmann::json& blob) const {
  return Read<double>(blob, "f64");
}

std::vector<int32_t> GoldenFile::Rows(const nlohmann::json& blob) const {
  return Read<int32_t>(blob, "i32");
}

std::vector<std::vector<int32_t>> GoldenFile::Lists(const nlohmann::json& lists) const {
  const std::vector<int32_t> rows = Rows(lists.at("rows"));
  std::vector<std::vector<int32_t>> result;
  auto next = rows.begin();
  for (const int32_t count : Rows(lists.at("counts"))) {
    result.emplace_back(next, next + count);
    next += count;
  }
  return result;
}

std::vector<std::string> GoldenIds(const std::string& operation) {
  std::vector<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator(TestDataPath("golden"))) {
    if (entry.path().extension() != ".json") continue;
    if (nlohmann::json::parse(ReadAll(entry.path())).at("operation") != operation) continue;
    ids.push_back(entry.path().stem());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace kvtriage
