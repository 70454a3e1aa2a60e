#include "client/cpp/memory_book.h"

#include <fcntl.h>
#include <unistd.h>

#include "client/cpp/ledger_slots.h"
#include "client/cpp/memory_ids.h"
#include "gtest/gtest.h"
#include "kvtriage/host_memory.h"

namespace kvtriage::client {
namespace {

CacheSpec CacheOver(Region k, Region v) {
  CacheSpec spec;
  LayerSpec layer;
  layer.k.region = k;
  layer.v.region = v;
  spec.layers.push_back(layer);
  return spec;
}

class MemoryBookTest : public testing::Test {
 protected:
  Lot Enter(const std::vector<CacheSpec>& caches, int regions = 2) {
    std::vector<RegionSpec> specs(static_cast<size_t>(regions), memory_->Lend());
    Lot lot = *book_.Prepare(specs, caches);
    book_.Enter(lot);
    return lot;
  }

  absl::StatusOr<HostMemory> memory_ = HostMemory::Create(4096);
  MemoryBook book_;
};

TEST_F(MemoryBookTest, IndicesOfTheCallBecomeHandles) {
  const Lot lot = Enter({CacheOver(Region::OfThisCall(1), Region::OfThisCall(0))});
  const auto spec = book_.SpecOf(lot.caches[0].cache);
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->layers[0].k.region, lot.regions[1].region);
  EXPECT_EQ(spec->layers[0].v.region, lot.regions[0].region);
  EXPECT_GE(lot.regions[0].region.handle, kFirstHandle);
}

TEST_F(MemoryBookTest, RegionsOfRowScalesCount) {
  CacheSpec cache = CacheOver(Region::OfThisCall(0), Region::OfThisCall(0));
  cache.layers[0].v.row_scales = RowScales{Region::OfThisCall(1), 0, 0, 0, 4};
  const Lot lot = Enter({cache});
  EXPECT_EQ(book_.SpecOf(lot.caches[0].cache)->layers[0].v.row_scales->region,
            lot.regions[1].region);
  EXPECT_EQ(book_.Remove({lot.regions[1].region}, {}).caches.size(), 1u);
}

TEST_F(MemoryBookTest, KeepsItsOwnDescriptors) {
  const Lot lot = Enter({});
  EXPECT_NE(lot.regions[0].spec.fd, memory_->fd());
  EXPECT_NE(fcntl(lot.regions[0].spec.fd, F_GETFD) & FD_CLOEXEC, 0);
  RegionSpec bad;
  bad.fd = -1;
  EXPECT_EQ(book_.Prepare({bad}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MemoryBookTest, ARegionTakesItsCachesWithIt) {
  const Lot first = Enter({CacheOver(Region::OfThisCall(0), Region::OfThisCall(1))});
  const Lot second = Enter({CacheOver(Region::OfThisCall(0), Region::OfThisCall(0))});
  const int fd = first.regions[1].spec.fd;
  const Lot gone = book_.Remove({first.regions[1].region, Region{12345}}, {});
  EXPECT_EQ(gone.regions.size(), 1u);
  ASSERT_EQ(gone.caches.size(), 1u);
  EXPECT_EQ(gone.caches[0].cache, first.caches[0].cache);
  EXPECT_NE(fcntl(fd, F_GETFD), -1);  // `first` still holds it
  EXPECT_EQ(book_.All().regions.size(), 3u);
  EXPECT_EQ(book_.All().caches.size(), 1u);
  EXPECT_FALSE(book_.SpecOf(first.caches[0].cache).has_value());
}

TEST(MemoryIds, UnknownHandlesGetAnIdOfNothingAndIndicesPassThrough) {
  MemoryIds ids;
  EXPECT_EQ(ids.IdOf(Region{kFirstHandle + 5}), kUnknownId);
  EXPECT_EQ(ids.IdOf(Region::OfThisCall(0)), 1u);
  ids.Set(Region{kFirstHandle + 5}, 99);
  EXPECT_EQ(ids.IdOf(Region{kFirstHandle + 5}), 99u);
  EXPECT_EQ(ids.RegionOf(99), Region{kFirstHandle + 5});
  ids.Remove(Region{kFirstHandle + 5});
  EXPECT_EQ(ids.IdOf(Region{kFirstHandle + 5}), kUnknownId);
}

TEST(LedgerSlots, AreHeldUntilTheLeaseEnds) {
  LedgerSlots slots(2);
  const auto soon = [] { return absl::Now() + absl::Milliseconds(10); };
  auto first = slots.Acquire(soon());
  auto second = slots.Acquire(soon());
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_NE(first->slot(), second->slot());
  EXPECT_FALSE(slots.Acquire(soon()).has_value());
  const uint32_t freed = first->slot();
  first.reset();
  auto third = slots.Acquire(soon());
  ASSERT_TRUE(third.has_value());
  EXPECT_EQ(third->slot(), freed);
  third->Keep();
  third.reset();
  EXPECT_FALSE(slots.Acquire(soon()).has_value());  // its job may still write the slot
}

}  // namespace
}  // namespace kvtriage::client
