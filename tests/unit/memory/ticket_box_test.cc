#include "service/memory/ticket_box.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/lent_memfd.h"

namespace kvtriage {
namespace {

using std::chrono::seconds;

TEST(TicketBox, ATicketWorksOnce) {
  TicketBox box;
  const uint64_t ticket = box.Add(MakeLentMemfd(4096), TicketBox::Time(seconds(30)));
  EXPECT_EQ(box.size(), 1u);
  EXPECT_FALSE(box.Take(ticket + 1));
  EXPECT_TRUE(box.Take(ticket)->valid());
  EXPECT_FALSE(box.Take(ticket));
  EXPECT_EQ(box.size(), 0u);
}

TEST(TicketBox, ExpiryIsExact) {
  TicketBox box;
  const uint64_t early = box.Add(MakeLentMemfd(4096), TicketBox::Time(seconds(30)));
  const uint64_t late = box.Add(MakeLentMemfd(4096), TicketBox::Time(seconds(31)));
  EXPECT_TRUE(box.TakeExpired(TicketBox::Time(seconds(30)) - std::chrono::nanoseconds(1)).empty());
  EXPECT_EQ(box.TakeExpired(TicketBox::Time(seconds(30))).size(), 1u);
  EXPECT_FALSE(box.Take(early));
  EXPECT_TRUE(box.Take(late));
}

TEST(TicketBox, TakeAllEmptiesIt) {
  TicketBox box;
  for (int i = 0; i < 5; ++i) box.Add(MakeLentMemfd(4096), TicketBox::Time(seconds(i)));
  EXPECT_EQ(box.TakeAll().size(), 5u);
  EXPECT_EQ(box.size(), 0u);
}

TEST(TicketBox, TicketsAreRandom) {
  TicketBox box;
  std::set<uint64_t> tickets;
  uint64_t all_or = 0;
  for (int i = 0; i < 64; ++i) {
    const uint64_t ticket = box.Add(UniqueFd(), TicketBox::Time::max());
    all_or |= ticket;
    EXPECT_NE(ticket, 0u);
    tickets.insert(ticket);
  }
  EXPECT_EQ(tickets.size(), 64u);
  EXPECT_EQ(all_or, ~uint64_t{0}) << "some bit is never set";
}

}  // namespace
}  // namespace kvtriage
