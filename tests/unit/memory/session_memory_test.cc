// Pins, lookups, unregistering: the life of a region once it is registered.
#include "service/memory/session_memory.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "tests/support/process_tables.h"
#include "tests/support/reason_of.h"
#include "tests/support/wait_until.h"
#include "tests/unit/memory/lender.h"

namespace kvtriage {
namespace {

constexpr char kName[] = "session-memory-test";
constexpr uint64_t kBytes = 4 * kPage;

class Lent : public testing::Test {
 protected:
  UniqueFd Memfd(uint8_t fill = 0) { return MakeLentMemfd(kBytes, fill, kLentSeals, kName); }
  RegisteredIds RegisterWithCache(const UniqueFd& fd) {
    RegisterSpec spec;
    spec.regions.push_back({lender_.Ticket(fd), 0, kBytes, true, 5, 0, ""});
    CacheSpec cache;
    cache.layers = {SmallLayer(0, {1, 0, SmallLayout(4)}, {1, 2 * kPage, SmallLayout(4)})};
    spec.caches.push_back({cache, 6});
    return lender_.Register(spec).value();
  }
  RegionListing Listing(uint64_t id) {
    for (const RegionListing& region : lender_->ListRegions()) {
      if (region.region_id == id) return region;
    }
    return {};
  }

  Lender lender_;
  UniqueFd fd_ = Memfd();
};

TEST_F(Lent, PinsAreCountedAndMove) {
  const uint64_t id = lender_.RegisterOne(fd_, kBytes).value();
  EXPECT_EQ(Listing(id).pins, 0u);
  {
    RegionPin a = lender_->Pin(id).value();
    RegionPin b = lender_->Pin(id).value();
    EXPECT_EQ(Listing(id).pins, 2u);
    RegionPin moved(std::move(a));
    EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): a moved-from pin holds nothing
    EXPECT_EQ(Listing(id).pins, 2u);
    b = std::move(moved);
    EXPECT_EQ(Listing(id).pins, 1u);
    b = RegionPin();
    EXPECT_EQ(Listing(id).pins, 0u);
  }
  EXPECT_EQ(Listing(id).pins, 0u);
}

// Sources: https://github.com/triton-inference-server/server/issues/3207 ,
// https://github.com/triton-inference-server/server/pull/7567
TEST_F(Lent, MemoryUsedByAJobStaysUntilItsPinDrops) {
  const RegisteredIds ids = RegisterWithCache(fd_);
  const uint64_t id = ids.region_ids[0];
  const size_t mappings = CountMappings(kName);
  RegionPin job = lender_->Pin(id).value();

  std::promise<absl::StatusOr<UnregisterCounts>> answer;
  UnregisterSpec spec;
  spec.region_ids = {id};
  lender_->Unregister(spec, 60'000, [&](auto counts) { answer.set_value(std::move(counts)); });
  // From here on nobody new gets at it; the job goes on.
  EXPECT_EQ(ReasonOf(lender_->Pin(id).status()), "memory_unknown");
  EXPECT_EQ(ReasonOf(lender_->FindCache(ids.cache_ids[0]).status()), "memory_unknown");
  EXPECT_TRUE(Listing(id).retiring);
  EXPECT_EQ(Listing(id).pins, 1u);
  EXPECT_EQ(lender_.observer().retiring, 1);
  lender_.Settle();
  job.data()[0] = std::byte{7};
  EXPECT_EQ(CountMappings(kName), mappings);

  // Asked again, and for everything, it is waited for and counted by all.
  std::promise<absl::StatusOr<UnregisterCounts>> again;
  spec = {};
  spec.everything = true;
  lender_->Unregister(spec, 60'000, [&](auto counts) { again.set_value(std::move(counts)); });
  std::future<absl::StatusOr<UnregisterCounts>> first = answer.get_future();
  EXPECT_EQ(first.wait_for(std::chrono::seconds(0)), std::future_status::timeout);

  job = RegionPin();
  EXPECT_EQ(first.get()->closed, 1u);
  EXPECT_EQ(again.get_future().get()->closed, 1u);
  EXPECT_EQ(CountMappings(kName), mappings - 1);
  EXPECT_TRUE(lender_->ListRegions().empty());
  EXPECT_EQ(lender_.observer().mapped, 0u);
  EXPECT_EQ(lender_.observer().retiring, 0);
}

TEST_F(Lent, UnregisterGivesUpAtItsDeadlineAndCanBeRepeated) {
  const uint64_t id = lender_.RegisterOne(fd_, kBytes).value();
  RegionPin job = lender_->Pin(id).value();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = lender_.UnregisterIds({id}, 5).status();
    EXPECT_EQ(ReasonOf(status), "region_retiring");
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  }
  job = RegionPin();
  const absl::StatusOr<UnregisterCounts> counts = lender_.UnregisterIds({id});
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->closed + counts->already_gone, 1u);
  EXPECT_EQ(lender_.UnregisterIds({id})->already_gone, 1u);
}

TEST_F(Lent, UnknownIdsAreAlreadyGone) {
  const RegisteredIds ids = RegisterWithCache(fd_);
  UnregisterSpec spec;
  spec.region_ids = {ids.region_ids[0], 123, ids.region_ids[0]};
  spec.cache_ids = {ids.cache_ids[0], 456};
  const absl::StatusOr<UnregisterCounts> counts = lender_.Unregister(spec);
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->closed, 1u) << "mappings: a cache has none, and an id named twice is one";
  EXPECT_EQ(counts->already_gone, 2u);
}

TEST_F(Lent, ACacheCanGoAloneAndItsMemoryStays) {
  const RegisteredIds ids = RegisterWithCache(fd_);
  UnregisterSpec spec;
  spec.cache_ids = {ids.cache_ids[0]};
  const absl::StatusOr<UnregisterCounts> counts = lender_.Unregister(spec);
  EXPECT_EQ(counts->closed, 0u);
  EXPECT_EQ(counts->already_gone, 0u);
  EXPECT_FALSE(lender_->FindCache(ids.cache_ids[0]).ok());
  EXPECT_TRUE(lender_->Pin(ids.region_ids[0]).ok());
}

TEST_F(Lent, ACacheGoesWithAnyOfItsRegions) {
  const RegisteredIds first = RegisterWithCache(fd_);
  RegisterSpec spec;
  const UniqueFd other = Memfd();
  spec.regions.push_back({lender_.Ticket(other), 0, kBytes, true, 0, 0, ""});
  CacheSpec cache;
  cache.layers = {
      SmallLayer(0, {1, 0, SmallLayout(4)}, {first.region_ids[0], kPage, SmallLayout(4)})};
  spec.caches.push_back({cache, 0});
  const RegisteredIds second = lender_.Register(spec).value();
  ASSERT_TRUE(lender_.UnregisterIds({first.region_ids[0]}).ok());
  EXPECT_FALSE(lender_->FindCache(first.cache_ids[0]).ok());
  EXPECT_FALSE(lender_->FindCache(second.cache_ids[0]).ok());
  EXPECT_TRUE(lender_->Pin(second.region_ids[0]).ok());
  EXPECT_TRUE(lender_->ListCaches().empty());
}

// Sources: https://github.com/triton-inference-server/server/issues/4361 ,
// https://github.com/triton-inference-server/server/issues/6114
TEST_F(Lent, TwoClientsWithOneNameAreTwoClients) {
  Lender b(MemoryQuota{}, &lender_.mapper());
  const uint64_t id_a = lender_.RegisterOne(fd_, kBytes, true, 7).value();
  const UniqueFd fd_b = Memfd();
  ASSERT_TRUE(b.RegisterOne(fd_b, kBytes, true, 7).ok());
  UnregisterSpec everything;
  everything.everything = true;
  EXPECT_EQ(b.Unregister(everything)->closed, 1u);
  EXPECT_EQ(b.UnregisterIds({id_a})->already_gone, 1u);
  EXPECT_EQ(ReasonOf(b->Pin(id_a).status()), "memory_unknown");
  EXPECT_TRUE(b->ListRegions().empty());
  EXPECT_TRUE(lender_->Pin(id_a).ok());
  EXPECT_EQ(lender_->ListRegions().size(), 1u);
}

// Sources: https://github.com/kvcache-ai/Mooncake/issues/2832 ,
// https://github.com/openucx/ucx/pull/2738
TEST_F(Lent, NoStaleMappingOfMemoryOfTheSameSize) {
  uint64_t old_id = 0;
  {
    Lender worker1(MemoryQuota{}, &lender_.mapper());
    const UniqueFd fd = Memfd(0xAA);
    old_id = worker1.RegisterOne(fd, kBytes).value();
    EXPECT_EQ(worker1->Pin(old_id)->data()[9], std::byte{0xAA});
  }
  lender_.Settle();
  const UniqueFd fd = Memfd(0xBB);
  const uint64_t id = lender_.RegisterOne(fd, kBytes).value();
  EXPECT_EQ(lender_->Pin(id)->data()[9], std::byte{0xBB});
  EXPECT_EQ(ReasonOf(lender_->Pin(old_id).status()), "memory_unknown");
}

// Sources: https://github.com/vllm-project/vllm/issues/28714 ,
// https://github.com/vllm-project/vllm/issues/36651
TEST_F(Lent, PagesReplacedBySleepAreRegisteredAnew) {
  const UniqueFd fd = Memfd(1);
  const uint64_t before = lender_.RegisterOne(fd, kBytes).value();
  ASSERT_EQ(lender_.UnregisterIds({before})->closed, 1u);
  EXPECT_EQ(ReasonOf(lender_->Pin(before).status()), "memory_unknown");
  const UniqueFd woken = Memfd(2);
  const uint64_t after = lender_.RegisterOne(woken, kBytes).value();
  EXPECT_NE(after, before);
  EXPECT_EQ(lender_->Pin(after)->data()[0], std::byte{2});
  EXPECT_EQ(ReasonOf(lender_->Pin(before).status()), "memory_unknown");
}

TEST_F(Lent, GuessedForeignAndClosedIdsGetOneText) {
  Lender other(MemoryQuota{}, &lender_.mapper());
  const uint64_t foreign = other.RegisterOne(fd_, kBytes).value();
  const uint64_t closed = lender_.RegisterOne(fd_, kBytes).value();
  const uint64_t retiring = lender_.RegisterOne(fd_, kBytes).value();
  const RegionPin job = lender_->Pin(retiring).value();
  ASSERT_TRUE(lender_.UnregisterIds({closed}).ok());
  EXPECT_EQ(ReasonOf(lender_.UnregisterIds({retiring}, 1).status()), "region_retiring");

  std::set<std::string> answers;
  for (const uint64_t id : {foreign, closed, retiring, uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    answers.insert(lender_->Pin(id).status().ToString());
  }
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 100'000; ++i) answers.insert(lender_->Pin(random()).status().ToString());
  EXPECT_EQ(answers.size(), 1u) << *answers.begin();
  EXPECT_EQ(lender_->Pin(closed).status().code(), absl::StatusCode::kNotFound);
  std::set<std::string> cache_answers;
  for (const uint64_t id : {foreign, closed, uint64_t{0}, uint64_t{7}}) {
    cache_answers.insert(lender_->FindCache(id).status().ToString());
  }
  EXPECT_EQ(cache_answers.size(), 1u);
}

TEST_F(Lent, DestructionClosesWhatIsLeftWhenThePinsDrop) {
  const size_t mappings = CountMappings(kName);
  RegionPin job;
  {
    Lender gone(MemoryQuota{}, &lender_.mapper());
    ASSERT_TRUE(gone.RegisterOne(fd_, kBytes).ok());
    gone.Ticket(fd_);
    gone.Settle();
  }
  lender_.Settle();
  lender_.Settle();  // the closing was posted by what the first one waited for
  EXPECT_EQ(CountMappings(kName), mappings);
}

// Freeing the pages of a large file takes long, and after its worker's death that is our part.
TEST_F(Lent, LargeRegionsCloseAside) {
  constexpr uint64_t kLarge = 2 * Mapper::kQuickBytes;  // never touched, so it costs nothing
  const UniqueFd large = MakeLentMemfd(kLarge, 0, kLentSeals, kName);
  const uint64_t id = lender_.RegisterOne(large, kLarge).value();
  ASSERT_EQ(CountMappings(kName), 1u);
  RegionPin job = lender_->Pin(id).value();
  EXPECT_EQ(ReasonOf(lender_.UnregisterIds({id}, 1).status()), "region_retiring");
  job = RegionPin();
  ASSERT_TRUE(lender_.UnregisterIds({id}).ok());
  EXPECT_EQ(CountMappings(kName), 0u);
  EXPECT_EQ(lender_.observer().mapped, 0u);
}

TEST_F(Lent, RetireAllWaitsForTheLastPin) {
  const uint64_t id = lender_.RegisterOne(fd_, kBytes).value();
  ASSERT_TRUE(lender_.RegisterOne(fd_, kBytes).ok());
  RegionPin job = lender_->Pin(id).value();
  std::promise<void> closed;
  lender_->RetireAll([&] { closed.set_value(); });
  std::future<void> future = closed.get_future();
  lender_.Settle();
  EXPECT_EQ(future.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  job = RegionPin();
  future.wait();
  EXPECT_EQ(CountMappings(kName), 0u);
  std::promise<void> twice;
  lender_->RetireAll([&] { twice.set_value(); });
  twice.get_future().wait();
}

// Pins come and go on several threads while regions are unregistered under them.
TEST_F(Lent, PinsAndUnregistersRace) {
  constexpr int kRounds = 200;
  std::atomic<uint64_t> current{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 3; ++i) {
    users.emplace_back([&] {
      while (!stop) {
        absl::StatusOr<RegionPin> pin = lender_->Pin(current.load());
        if (!pin.ok()) continue;
        EXPECT_EQ(pin->data()[5], std::byte{0});  // SIGSEGV if it was unmapped under us
        RegionPin moved = std::move(*pin);
      }
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t id = lender_.RegisterOne(fd_, kBytes).value();
    current = id;
    std::this_thread::yield();
    const absl::StatusOr<UnregisterCounts> counts = lender_.UnregisterIds({id});
    ASSERT_TRUE(counts.ok()) << counts.status();
    ASSERT_EQ(counts->closed, 1u);
    ASSERT_EQ(CountMappings(kName), 0u);
  }
  stop = true;
  for (std::thread& user : users) user.join();
  EXPECT_TRUE(lender_->ListRegions().empty());
  EXPECT_EQ(lender_.observer().mapped, 0u);
}

// After any mix of good and bad calls, closing everything leaves no pin and no mapping.
TEST_F(Lent, EveryErrorPathGivesItsPinsBack) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<uint64_t> known;
  for (int step = 0; step < 500; ++step) {
    RegisterSpec spec;
    const uint64_t pick = known.empty() ? 0 : known[random() % known.size()];
    switch (random() % 6) {
      case 0:
        if (auto id = lender_.RegisterOne(fd_, kBytes); id.ok()) known.push_back(*id);
        break;
      case 1:
        EXPECT_FALSE(lender_.RegisterOne(fd_, kBytes + 1).ok());
        break;
      case 2: {
        CacheSpec cache;
        cache.layers = {
            SmallLayer(0, {pick, 0, SmallLayout(4)}, {pick, random() % kBytes, SmallLayout(4)})};
        spec.caches.push_back({cache, 0});
        (void)lender_.Register(spec);
        break;
      }
      case 3:
        (void)lender_->Pin(pick);
        break;
      case 4:
        (void)lender_.UnregisterIds({pick, random()});
        break;
      case 5:
        spec.regions.push_back({random(), 0, kPage, true, 0, 0, ""});
        EXPECT_FALSE(lender_.Register(spec).ok());
        break;
    }
    for (const RegionListing& region : lender_->ListRegions()) ASSERT_EQ(region.pins, 0u);
  }
  UnregisterSpec everything;
  everything.everything = true;
  ASSERT_TRUE(lender_.Unregister(everything).ok());
  EXPECT_EQ(CountMappings(kName), 0u);
}

}  // namespace
}  // namespace kvtriage
