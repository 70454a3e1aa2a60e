#include "service/memory/memfd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/lent_memfd.h"
#include "tests/support/reason_of.h"
#include "tests/support/temp_dir.h"

namespace kvtriage {
namespace {

std::string CheckReason(int fd) { return ReasonOf(CheckMemfd(fd).status()); }

TEST(Memfd, TakesOneWithAllThreeSeals) {
  const UniqueFd fd = MakeLentMemfd(12345);
  const absl::StatusOr<MemfdFacts> facts = CheckMemfd(fd.get());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->bytes, 12345u);
  const UniqueFd same = Duplicate(fd);
  EXPECT_EQ(CheckMemfd(same.get())->inode, facts->inode);
  EXPECT_NE(CheckMemfd(MakeLentMemfd(12345).get())->inode, facts->inode);
}

// Sources: https://github.com/pytorch/pytorch/issues/58386 ,
// https://github.com/odysseus-dev/odysseus/pull/6259 ,
// https://github.com/IBM/text-generation-inference/pull/34
TEST(Memfd, SegmentThatMayShrinkIsRefused) {
  EXPECT_EQ(CheckReason(MakeLentMemfd(1 << 20, 0, 0).get()), "region_not_sealed");
  for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
    SCOPED_TRACE(missing);
    EXPECT_EQ(CheckReason(MakeLentMemfd(4096, 0, kLentSeals & ~missing).get()),
              "region_not_sealed");
  }
  const UniqueFd sealed = MakeLentMemfd(1 << 20, 0xAA);
  EXPECT_NE(::ftruncate(sealed.get(), 0), 0);
  EXPECT_NE(::ftruncate(sealed.get(), 2 << 20), 0);
  EXPECT_NE(::fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Memfd, WrongTypesAreRefused) {
  EXPECT_EQ(CheckReason(-1), "fd_wrong_type");
  EXPECT_EQ(CheckReason(MakeLentMemfd(0).get()), "fd_wrong_type");
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(CheckReason(UniqueFd(ends[0]).get()), "fd_wrong_type");
  EXPECT_EQ(CheckReason(UniqueFd(ends[1]).get()), "fd_wrong_type");
  EXPECT_EQ(CheckReason(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)).get()),
            "fd_wrong_type");
  EXPECT_EQ(CheckReason(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC)).get()), "fd_wrong_type");
  const TempDir dir;
  EXPECT_EQ(CheckReason(UniqueFd(::open(dir.path().c_str(), O_RDONLY | O_CLOEXEC)).get()),
            "fd_wrong_type");
  const UniqueFd file(::open(dir.File("rows").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  // On a disk: no seals. On a tmpfs: seals can be read, but the needed ones are not there.
  const std::string reason = CheckReason(file.get());
  EXPECT_TRUE(reason == "fd_wrong_type" || reason == "region_not_sealed") << reason;
  EXPECT_EQ(CheckReason(UniqueFd(::open("/proc/self/exe", O_PATH | O_CLOEXEC)).get()),
            "fd_wrong_type");
}

TEST(Memfd, HugePagesAreRefused) {
  const UniqueFd fd(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd.valid()) GTEST_SKIP() << "no huge memfds here";
  ASSERT_EQ(::ftruncate(fd.get(), 2 << 20), 0);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, kLentSeals), 0);
  EXPECT_EQ(CheckReason(fd.get()), "fd_wrong_type");
}

TEST(Memfd, AccessModeDecidesWhatItMayBeRegisteredFor) {
  const UniqueFd fd = MakeLentMemfd(4096);
  const auto reopen = [&](int mode) {
    return UniqueFd(
        ::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), mode | O_CLOEXEC));
  };
  EXPECT_TRUE(CheckMemfdAccess(fd.get(), true).ok());
  EXPECT_TRUE(CheckMemfdAccess(reopen(O_RDONLY).get(), false).ok());
  EXPECT_EQ(ReasonOf(CheckMemfdAccess(reopen(O_RDONLY).get(), true)), "region_read_only");
  EXPECT_EQ(ReasonOf(CheckMemfdAccess(reopen(O_WRONLY).get(), false)), "region_read_only");
  EXPECT_EQ(ReasonOf(CheckMemfdAccess(reopen(O_WRONLY).get(), true)), "region_read_only");
  EXPECT_EQ(ReasonOf(CheckMemfdAccess(-1, false)), "region_read_only");
}

TEST(Memfd, WriteSealsAllowReadingOnly) {
  for (const int seal : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE}) {
    const UniqueFd fd = MakeLentMemfd(4096, 0, kLentSeals | seal);
    EXPECT_TRUE(CheckMemfd(fd.get()).ok());
    EXPECT_TRUE(CheckMemfdAccess(fd.get(), false).ok());
    EXPECT_EQ(ReasonOf(CheckMemfdAccess(fd.get(), true)), "region_read_only");
  }
}

TEST(Memfd, OwnOnesAreSealableAndNotInherited) {
  const UniqueFd fd = MakeMemfd("own");
  ASSERT_TRUE(fd.valid());
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
}

}  // namespace
}  // namespace kvtriage
