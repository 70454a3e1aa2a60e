#include "service/session/unix_listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>

#include "tests/support/process_tables.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/session/fd_client.h"

namespace kvtriage {
namespace {

using Code = absl::StatusCode;

mode_t ModeOf(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}
bool IsSocket(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}
bool Exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

class Listening : public testing::Test {
 protected:
  absl::StatusOr<UnixListener> Bind(const std::string& path, mode_t mode = 0660) {
    UnixListenerOptions options;
    options.path = path;
    options.mode = mode;
    return UnixListener::Bind(options);
  }
  const TempDir dir_;
  const std::string path_ = dir_.File("service.sock");
};

TEST_F(Listening, TakesConnectionsAndRemovesItsSocketAtTheEnd) {
  const size_t descriptors = CountDescriptors();
  {
    const absl::StatusOr<UnixListener> listener = Bind(path_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_TRUE(ConnectTo(path_, SOCK_STREAM).valid());
    EXPECT_FALSE(ConnectTo(path_, SOCK_SEQPACKET).valid()) << "another type of socket";
    EXPECT_EQ(::fcntl(listener->fd(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    EXPECT_EQ(::fcntl(listener->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    EXPECT_EQ(listener->path(), path_);
  }
  EXPECT_FALSE(Exists(path_));
  EXPECT_TRUE(Exists(path_ + ".lock")) << "removing it would let two owners lock two files";
  EXPECT_EQ(CountDescriptors(), descriptors);
  EXPECT_TRUE(Bind(path_).ok());
}

TEST_F(Listening, TheFileIsBornWithItsMode) {
  const mode_t before = ::umask(0);
  const auto open_one = Bind(path_);
  const auto closed_one = Bind(dir_.File("admin.sock"), 0600);
  EXPECT_EQ(::umask(before), mode_t{0}) << "the umask was given back";
  ASSERT_TRUE(open_one.ok() && closed_one.ok());
  EXPECT_EQ(ModeOf(path_), mode_t{0660});
  EXPECT_EQ(ModeOf(dir_.File("admin.sock")), mode_t{0600});
}

// Source: https://github.com/grpc/grpc/issues/17122
TEST_F(Listening, ASecondServerDoesNotTakeTheSocketOfALiveOne) {
  const auto owner = Bind(path_);
  ASSERT_TRUE(owner.ok());
  EXPECT_EQ(Bind(path_).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(ConnectTo(path_, SOCK_STREAM).valid()) << "the first one was disturbed";
}

TEST_F(Listening, ALeftoverSocketIsReplaced) {
  {
    const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(IsSocket(path_));
  const auto listener = Bind(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(ConnectTo(path_, SOCK_STREAM).valid());
}

TEST_F(Listening, AnythingElseInItsPlaceIsLeftAlone) {
  std::ofstream(path_) << "precious";
  EXPECT_EQ(Bind(path_).status().code(), Code::kFailedPrecondition);
  std::string content;
  std::ifstream(path_) >> content;
  EXPECT_EQ(content, "precious");

  const std::string directory = dir_.File("directory.sock");
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  EXPECT_EQ(Bind(directory).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Exists(directory));

  const std::string link = dir_.File("link.sock");
  ASSERT_EQ(::symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_EQ(Bind(link).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Exists(link) && Exists(path_));
}

TEST_F(Listening, ALockHeldByAnotherIsAnOwner) {
  const UniqueFd lock(::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  EXPECT_EQ(Bind(path_).status().code(), Code::kFailedPrecondition);
  ASSERT_EQ(::flock(lock.get(), LOCK_UN), 0);
  EXPECT_TRUE(Bind(path_).ok());
}

TEST_F(Listening, ALockFileThatIsALinkIsNotFollowed) {
  const std::string target = dir_.File("target");
  ASSERT_EQ(::symlink(target.c_str(), (path_ + ".lock").c_str()), 0);
  EXPECT_FALSE(Bind(path_).ok());
  EXPECT_FALSE(Exists(target));
}

TEST_F(Listening, PathsOver107BytesAreAConfigurationError) {
  const std::string fits = dir_.File(std::string(107 - dir_.path().size() - 1, 'a'));
  ASSERT_EQ(fits.size(), 107u);
  EXPECT_TRUE(Bind(fits).ok());
  EXPECT_EQ(Bind(fits + "b").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Bind(std::string(120, 'x')).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Bind("").status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(Exists(fits + "b.lock"));
}

TEST_F(Listening, AMissingDirectoryIsMade) {
  const mode_t before = ::umask(0077);
  const auto listener = Bind(dir_.File("run/service.sock"));
  ::umask(before);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(ModeOf(dir_.File("run")), mode_t{0750});
  EXPECT_EQ(Bind(dir_.File("none/none/service.sock")).status().code(), Code::kUnavailable);
  std::ofstream(dir_.File("file")) << "x";
  EXPECT_EQ(Bind(dir_.File("file/service.sock")).status().code(), Code::kFailedPrecondition);
}

TEST_F(Listening, ADirectoryOpenToAllIsToldOrRefused) {
  const std::string open_dir = dir_.File("open"), sticky = dir_.File("sticky");
  ASSERT_EQ(::mkdir(open_dir.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(open_dir.c_str(), 0777), 0);
  ASSERT_EQ(::mkdir(sticky.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(sticky.c_str(), 01777), 0);
  EXPECT_TRUE(Bind(open_dir + "/a.sock")->directory_is_open());
  EXPECT_FALSE(Bind(sticky + "/a.sock")->directory_is_open());
  UnixListenerOptions options;
  options.strict_dir = true;
  options.path = open_dir + "/b.sock";
  EXPECT_EQ(UnixListener::Bind(options).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(Exists(options.path));
  options.path = sticky + "/b.sock";
  EXPECT_TRUE(UnixListener::Bind(options).ok());
}

TEST_F(Listening, MovesAndRemovesOnlyItsOwnFile) {
  auto first = Bind(path_);
  ASSERT_TRUE(first.ok());
  UnixListener moved(std::move(*first));
  first = absl::CancelledError();
  EXPECT_TRUE(IsSocket(path_));
  moved = Bind(dir_.File("other.sock")).value();
  EXPECT_FALSE(Exists(path_)) << "the one that was assigned over is closed";
  // Somebody put another file in its place: that one stays.
  ASSERT_EQ(::unlink(dir_.File("other.sock").c_str()), 0);
  std::ofstream(dir_.File("other.sock")) << "x";
  { const UnixListener last(std::move(moved)); }
  EXPECT_TRUE(Exists(dir_.File("other.sock")));
}

}  // namespace
}  // namespace kvtriage
