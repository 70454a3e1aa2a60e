#include "service/observe/log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "service/memory/unique_fd.h"
#include "service/observe/log_limiter.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

using nlohmann::json;

// Where a test's log goes.
class LogFile {
 public:
  LogFile() : fd_(memfd_create("log", MFD_CLOEXEC)) {}
  int fd() const { return fd_.get(); }

  std::vector<json> Lines() const {
    std::string text(static_cast<size_t>(lseek(fd_.get(), 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(fd_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    std::vector<json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }

 private:
  UniqueFd fd_;
};

TEST(Log, WritesOneJsonObjectPerLine) {
  const LogFile file;
  {
    Log log({.fd = file.fd()});
    log.Write(LogLine(LogLevel::kInfo, "started")
                  .Add("version", "0.1.0")
                  .AddHex("session", 0xabc)
                  .Add("us", 12)
                  .Reason(ErrorReason::kQueueFull));
  }
  const std::vector<json> lines = file.Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["event"], "started");
  EXPECT_EQ(lines[0]["level"], "info");
  EXPECT_EQ(lines[0]["session"], "0000000000000abc");
  EXPECT_EQ(lines[0]["us"], 12);
  EXPECT_EQ(lines[0]["reason"], "queue_full");
  const std::regex time(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)");
  EXPECT_TRUE(std::regex_match(lines[0]["ts"].get<std::string>(), time)) << lines[0]["ts"];
}

TEST(Log, EscapesWhatJsonCannotHold) {
  const LogFile file;
  const std::string text = "a\"b\\c\nd\x01\xff";
  {
    Log log({.fd = file.fd()});
    log.Write(LogLine(LogLevel::kInfo, "x").Add("text", text));
  }
  const std::vector<json> lines = file.Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["text"], "a\"b\\c\nd\x01\u00ff");
}

TEST(Log, LeavesOutLowerLevels) {
  const LogFile file;
  {
    Log log({.level = LogLevel::kWarn, .fd = file.fd()});
    log.Write(LogLine(LogLevel::kDebug, "debug"));
    log.Write(LogLine(LogLevel::kInfo, "info"));
    log.Write(LogLine(LogLevel::kError, "error"));
    EXPECT_FALSE(log.Enabled(LogLevel::kInfo));
  }
  ASSERT_EQ(file.Lines().size(), 1u);
  EXPECT_EQ(file.Lines()[0]["event"], "error");
}

TEST(Log, TenLinesPerReasonAndSecond) {
  LogLimiter limiter;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limiter.Admit("key_reused", 1'000), 0u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(limiter.Admit("key_reused", 1'999), std::nullopt);
  EXPECT_EQ(limiter.Admit("draining", 1'999), 0u) << "each word has a budget of its own";
  EXPECT_EQ(limiter.Admit("key_reused", 2'000), 7u) << "the next line says how many were left out";
  EXPECT_EQ(limiter.Admit("key_reused", 2'000), 0u);
}

TEST(Log, FloodOfOneReasonDoesNotSilenceOthers) {
  const LogFile file;
  {
    Log log({.fd = file.fd()});
    for (int i = 0; i < 1'000; ++i) {
      log.Write(LogLine(LogLevel::kInfo, "rpc").Reason(ErrorReason::kSessionUnknown));
    }
    log.Write(LogLine(LogLevel::kInfo, "stopped"));
  }
  const std::vector<json> lines = file.Lines();
  EXPECT_LE(lines.size(), 31u) << "ten a second, and this takes less than three";
  EXPECT_EQ(lines.back()["event"], "stopped");
}

TEST(Log, FullQueueDropsAndCounts) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  fcntl(ends[0], F_SETPIPE_SZ, 4096);  // a few lines fill it
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  std::string text;
  {
    Log log({.fd = write_end.get(), .queue_lines = 8});
    // The pipe fills, the writer stops, the queue fills: then lines are dropped. Writing never
    // waits.
    const std::string wide(1'000, 'x');
    for (int i = 0; i < 1'000; ++i) log.Write(LogLine(LogLevel::kInfo, "fill").Add("text", wide));
    EXPECT_FALSE(log.Flush(1)) << "nobody reads";
    std::thread reader([&] {
      char bytes[65'536];
      for (ssize_t got; (got = read(read_end.get(), bytes, sizeof(bytes))) > 0;) {
        text.append(bytes, static_cast<size_t>(got));
      }
    });
    EXPECT_TRUE(log.Flush(10'000));
    log.Write(LogLine(LogLevel::kInfo, "after"));
    EXPECT_TRUE(log.Flush(10'000));
    write_end.reset();  // the reader sees the end; nothing is queued any more
    reader.join();
  }
  const size_t after = text.find("\"event\":\"after\"");
  ASSERT_NE(after, std::string::npos);
  EXPECT_NE(text.find("\"dropped\":", after), std::string::npos);
}

TEST(Log, LevelNamesRoundTrip) {
  for (const char* name : {"debug", "info", "warn", "error"}) {
    const std::optional<LogLevel> level = ParseLogLevel(name);
    ASSERT_TRUE(level.has_value());
    EXPECT_EQ(LogLevelName(*level), name);
  }
  EXPECT_FALSE(ParseLogLevel("verbose").has_value());
}

}  // namespace
}  // namespace kvtriage
