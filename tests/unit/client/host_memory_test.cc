#include "kvtriage/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace kvtriage::client {
namespace {

TEST(HostMemory, IsSealedZeroedAndClosedOnExec) {
  const auto memory = HostMemory::Create(10000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), 10000u);
  for (const std::byte b : memory->bytes()) ASSERT_EQ(b, std::byte{0});
  const int seals = fcntl(memory->fd(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(seals & F_SEAL_WRITE, 0);
  EXPECT_NE(ftruncate(memory->fd(), 100), 0);
  EXPECT_NE(ftruncate(memory->fd(), 20000), 0);
  EXPECT_NE(fcntl(memory->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(HostMemory, MovesAndGivesEverythingBack) {
  auto memory = HostMemory::Create(4096);
  ASSERT_TRUE(memory.ok());
  const int fd = memory->fd();
  std::byte* const data = memory->data();
  {
    HostMemory taken = *std::move(memory);
    EXPECT_EQ(taken.data(), data);
    EXPECT_EQ(memory->data(), nullptr);
    EXPECT_EQ(memory->fd(), -1);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(HostMemory, WrapsASealedMemfdOfAnotherOwner) {
  const auto owner = HostMemory::Create(4096);
  ASSERT_TRUE(owner.ok());
  const auto wrapped = HostMemory::Wrap(owner->fd());
  ASSERT_TRUE(wrapped.ok()) << wrapped.status();
  EXPECT_NE(wrapped->fd(), owner->fd());
  owner->data()[5] = std::byte{42};
  EXPECT_EQ(wrapped->data()[5], std::byte{42});
}

TEST(HostMemory, RefusesWhatIsNotSealed) {
  const int fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, 4096), 0);
  EXPECT_FALSE(HostMemory::Wrap(fd).ok());
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_FALSE(HostMemory::Wrap(fd).ok());  // the seals could still be added to
  close(fd);
  EXPECT_FALSE(HostMemory::Wrap(STDIN_FILENO).ok());
  EXPECT_FALSE(HostMemory::Wrap(-1).ok());
  EXPECT_FALSE(HostMemory::Create(0).ok());
}

}  // namespace
}  // namespace kvtriage::client
