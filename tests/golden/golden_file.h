// Reads the files that make_golden.py and make_dump_golden.py write (see README.md). Fails the
// test, and then the process, on a file that is not as expected: there is nothing to go on with.
#ifndef KVTRIAGE_TESTS_GOLDEN_GOLDEN_FILE_H_
#define KVTRIAGE_TESTS_GOLDEN_GOLDEN_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace kvtriage {

class GoldenFile {
 public:
  // `id` is the name without extension.
  explicit GoldenFile(const std::string& id);

  const nlohmann::json& head() const { return head_; }
  const nlohmann::json& operator[](const char* field) const { return head_.at(field); }

  // A field that few files have.
  uint32_t Get(const char* field, uint32_t otherwise) const {
    return head_.value(field, otherwise);
  }

  // Array number `blob`.
  std::vector<double> Doubles(const nlohmann::json& blob) const;
  std::vector<int32_t> Rows(const nlohmann::json& blob) const;
  // Ragged lists: {"counts", "rows"}.
  std::vector<std::vector<int32_t>> Lists(const nlohmann::json& lists) const;

 private:
  template <typename T>
  std::vector<T> Read(const nlohmann::json& blob, const char* dtype) const;

  nlohmann::json head_;
  std::string bytes_;
};

// Ids of all golden files of one operation ("compress", "hkvd"), in alphabetical order.
std::vector<std::string> GoldenIds(const std::string& operation);

std::string TestDataPath(const std::string& name);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_GOLDEN_GOLDEN_FILE_H_
