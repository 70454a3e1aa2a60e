// Writes small safetensors files, good and bad, for the CLI's tests.
#ifndef KVTRIAGE_TESTS_UNIT_CLI_DUMP_FILE_H_
#define KVTRIAGE_TESTS_UNIT_CLI_DUMP_FILE_H_

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {

// A file of its own under the test's temporary directory, removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    static int serial = 0;
    path_ = testing::TempDir() + "kvtriage_cli_" + std::to_string(::getpid()) + "_" +
            std::to_string(serial++);
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string WithHeader(const std::string& header, const std::string& data) {
  const uint64_t bytes = header.size();
  return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + header + data;
}

// A cache dump of one layer whose metadata and tensors a test may change before it is written.
// Zeros.
struct CacheDumpContent {
  struct Tensor {
    std::string dtype;
    std::vector<uint64_t> shape;
  };
  std::map<std::string, std::string> metadata = {{"format", "kvtriage-dump-1"},
                                                 {"kind", "cache"},
                                                 {"scale", "0.5"},
                                                 {"query_stage", "after_rope"},
                                                 {"layers", "30"},
                                                 {"dumped_layers", "[7]"},
                                                 {"lse_base", "e"}};
  std::map<std::string, Tensor> tensors = {{"layers.7.k", {"F16", {2, 10, 4}}},
                                           {"layers.7.v", {"BF16", {2, 10, 6}}},
                                           {"layers.7.q", {"F32", {4, 3, 4}}},
                                           {"layers.7.o", {"F16", {4, 3, 6}}},
                                           {"layers.7.lse", {"F32", {4, 3}}}};

  std::string File() const {
    nlohmann::json header = {{"__metadata__", metadata}};
    uint64_t end = 0;
    for (const auto& [name, tensor] : tensors) {
      uint64_t bytes = tensor.dtype == "F32" || tensor.dtype == "I32" ? 4 : 2;
      for (const uint64_t extent : tensor.shape) bytes *= extent;
      header[name] = {
          {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
      end += bytes;
    }
    return WithHeader(header.dump(), std::string(end, '\0'));
  }
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_TESTS_UNIT_CLI_DUMP_FILE_H_
