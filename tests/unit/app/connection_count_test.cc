#include "service/app/connection_count.h"

#include <sys/socket.h>

#include <vector>

#include "gtest/gtest.h"
#include "service/memory/unique_fd.h"

namespace kvtriage {
namespace {

UniqueFd NewSocket() { return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

TEST(ConnectionCount, ClosedOnesMakeRoom) {
  ConnectionCount count(2);
  UniqueFd first = NewSocket(), second = NewSocket(), third = NewSocket();
  EXPECT_TRUE(count.Admit(first.get()));
  EXPECT_TRUE(count.Admit(second.get()));
  EXPECT_FALSE(count.Admit(third.get()));
  first.reset();
  EXPECT_TRUE(count.Admit(third.get()));
}

TEST(ConnectionCount, ANumberUsedAgainIsAnotherConnection) {
  ConnectionCount count(1);
  for (int i = 0; i < 100; ++i) {
    const UniqueFd socket = NewSocket();  // most likely the same number each time
    ASSERT_TRUE(count.Admit(socket.get())) << i;
  }
}

}  // namespace
}  // namespace kvtriage
