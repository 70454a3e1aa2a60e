// The other process of a test with device memory (exporter.cc), on the machine of FakeFolder.
#ifndef KVTRIAGE_TESTS_UNIT_FAKE_CUDA_EXPORTER_PROCESS_H_
#define KVTRIAGE_TESTS_UNIT_FAKE_CUDA_EXPORTER_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "tests/support/child_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"
#include "tests/unit/fake_cuda/fake_device.h"

namespace kvtriage {

// A process that has allocated and does what it is told.
class Exporter {
 public:
  explicit Exporter(const std::string& script = "") {
    const std::string pipe = folder_.File("words");
    EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    process_ = ChildProcess::Start(KVTRIAGE_BIN_DIR "/fake_cuda_exporter",
                                   {.arguments = {pipe},
                                    .environment = {"KVTRIAGE_FAKE_CUDA=" + FakeFolder(),
                                                    "KVTRIAGE_FAKE_CUDA_SCRIPT=" + script}});
    words_ = open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
    handle_ = Line();
  }
  ~Exporter() { close(words_); }

  // Answers are lines in the order of the words.
  std::string Tell(const std::string& word) {
    const std::string line = word + "\n";
    EXPECT_EQ(write(words_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    return Line();
  }
  const std::string& handle() const { return handle_; }
  ChildProcess& process() { return *process_; }

 private:
  std::string Line() {
    std::string line;
    EXPECT_TRUE(WaitUntil([&] {
      const std::string output = process_->Output();
      size_t start = 0;
      for (size_t i = 0; i < lines_; ++i) {
        const size_t end = output.find('\n', start);
        if (end == std::string::npos) return false;
        start = end + 1;
      }
      const size_t end = output.find('\n', start);
      if (end == std::string::npos) return false;
      line = output.substr(start, end - start);
      return true;
    })) << process_->ErrorOutput();
    ++lines_;
    return line;
  }

  TempDir folder_;
  std::unique_ptr<ChildProcess> process_;
  int words_ = -1;
  size_t lines_ = 0;
  std::string handle_;
};

template <class Handle>
Handle FromHex(const std::string& hex) {
  Handle handle{};
  EXPECT_EQ(hex.size(), 2 * sizeof handle.reserved);
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < hex.size(); ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_FAKE_CUDA_EXPORTER_PROCESS_H_
