// RegisterRegions: all or nothing, whatever is wrong and wherever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "service/observe/fault_point.h"
#include "tests/support/process_tables.h"
#include "tests/support/reason_of.h"
#include "tests/support/wait_until.h"
#include "tests/unit/memory/lender.h"

namespace kvtriage {
namespace {

constexpr char kName[] = "registration-test";
constexpr uint64_t kBytes = 16 * kPage;

class Registering : public testing::Test {
 protected:
  UniqueFd Memfd(uint64_t bytes = kBytes, uint8_t fill = 0) {
    return MakeLentMemfd(bytes, fill, kLentSeals, kName);
  }
  // Two whole regions and a cache over them: K in the first, V in the second.
  RegisterSpec GoodSpec() {
    RegisterSpec spec;
    spec.regions.push_back({lender_.Ticket(k_), 0, kBytes, true, 71, 0, ""});
    spec.regions.push_back({lender_.Ticket(v_), 0, kBytes, true, 72, 0, ""});
    CacheSpec cache;
    cache.num_layers = 1;
    cache.layers = {SmallLayer(0, {1, 0, SmallLayout(4)}, {2, 0, SmallLayout(4)})};
    spec.caches.push_back({cache, 9});
    return spec;
  }
  // Registers what must fail, and checks that nothing is left of it.
  absl::Status Refusal(RegisterSpec spec) {
    const absl::StatusOr<RegisteredIds> ids = lender_.Register(std::move(spec));
    lender_.Settle();
    EXPECT_EQ(CountMappings(kName), mappings_);
    EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == descriptors_; }))
        << CountDescriptors() << " descriptors, " << descriptors_ << " before";
    EXPECT_TRUE(lender_->ListRegions().empty());
    EXPECT_TRUE(lender_->ListCaches().empty());
    EXPECT_EQ(lender_.observer().mapped, 0u);
    EXPECT_EQ(lender_.observer().retiring, 0);
    return ids.status();
  }

  UniqueFd k_ = Memfd(), v_ = Memfd();
  Lender lender_;
  const size_t descriptors_ = CountDescriptors(), mappings_ = CountMappings(kName);
};

TEST_F(Registering, GivesIdsInOrderAndMapsOnceEach) {
  const absl::StatusOr<RegisteredIds> ids = lender_.Register(GoodSpec());
  ASSERT_TRUE(ids.ok()) << ids.status();
  ASSERT_EQ(ids->region_ids.size(), 2u);
  ASSERT_EQ(ids->cache_ids.size(), 1u);
  for (const uint64_t id : ids->region_ids) EXPECT_GE(id, uint64_t{1} << 32);
  EXPECT_GE(ids->cache_ids[0], uint64_t{1} << 32);
  EXPECT_EQ(CountMappings(kName), mappings_ + 2);
  EXPECT_EQ(CountDescriptors(), descriptors_) << "a mapping needs no descriptor";
  EXPECT_EQ(lender_.observer().mapped, 2 * kBytes);

  const auto cache = lender_->FindCache(ids->cache_ids[0]);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ((*cache)->tag, 9u);
  EXPECT_EQ((*cache)->spec.layers[0].k.region_id, ids->region_ids[0]);
  EXPECT_EQ((*cache)->spec.layers[0].v.region_id, ids->region_ids[1]);
  const auto listed = lender_->ListCaches();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].region_ids, ids->region_ids);
  EXPECT_EQ(listed[0].layers, 1u);
  for (const RegionListing& region : lender_->ListRegions()) {
    EXPECT_EQ(region.tag, region.region_id == ids->region_ids[0] ? 71u : 72u);
    EXPECT_EQ(region.size, kBytes);
    EXPECT_TRUE(region.writable);
    EXPECT_FALSE(region.retiring);
    EXPECT_EQ(region.pins, 0u);
  }
}

TEST_F(Registering, TheMappingIsTheWorkersMemory) {
  const absl::StatusOr<uint64_t> id = lender_.RegisterOne(k_, kBytes);
  ASSERT_TRUE(id.ok());
  const absl::StatusOr<RegionPin> pin = lender_->Pin(*id);
  ASSERT_TRUE(pin.ok());
  ASSERT_EQ(::pwrite(k_.get(), "worker", 6, 100), 6);
  EXPECT_EQ(std::memcmp(pin->data() + 100, "worker", 6), 0);
  std::memcpy(pin->data() + 200, "service", 7);
  char back[7];
  ASSERT_EQ(::pread(k_.get(), back, 7, 200), 7);
  EXPECT_EQ(std::memcmp(back, "service", 7), 0);
  EXPECT_EQ(pin->size(), kBytes);
}

// Sources: https://github.com/pytorch/pytorch/issues/58386 ,
// https://github.com/odysseus-dev/odysseus/pull/6259
TEST_F(Registering, AHolePunchedUnderTheMappingReadsAsZeros) {
  const UniqueFd fd = Memfd(kBytes, 0xAA);
  const absl::StatusOr<uint64_t> id = lender_.RegisterOne(fd, kBytes);
  ASSERT_TRUE(id.ok());
  const RegionPin pin = lender_->Pin(*id).value();
  ASSERT_EQ(pin.data()[kPage], std::byte{0xAA});
  ASSERT_EQ(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPage, 2 * kPage), 0);
  EXPECT_EQ(pin.data()[kPage], std::byte{0});
  EXPECT_EQ(pin.data()[3 * kPage], std::byte{0xAA});
}

TEST_F(Registering, TicketsThatAreUnknownUsedExpiredOrForeign) {
  RegisterSpec spec = GoodSpec();
  const RegisterSpec used = spec;
  spec.regions[1].ticket ^= 1;
  const absl::Status status = lender_.Register(spec).status();
  EXPECT_EQ(ReasonOf(status), "ticket_unknown");
  EXPECT_EQ(FieldOf(status), "regions[1].host.ticket");
  EXPECT_EQ(FieldOf(lender_.Register(used).status()), "regions[0].host.ticket")
      << "a failed call uses its tickets up";

  spec = GoodSpec();
  lender_->DropTickets();
  spec.regions[0].ticket = spec.regions[1].ticket = lender_.Ticket(k_);
  EXPECT_EQ(FieldOf(Refusal(spec)), "regions[1].host.ticket")
      << "a ticket works once, also in one call";

  Lender other(MemoryQuota{}, &lender_.mapper());
  spec = GoodSpec();
  spec.regions[0].ticket = other.Ticket(k_);
  EXPECT_EQ(ReasonOf(lender_.Register(spec).status()), "ticket_unknown");
  other->DropTickets();
}

TEST_F(Registering, ExpiredTickets) {
  MemoryQuota quota;
  quota.ticket_life_ms = 0;
  Lender lender(quota, &lender_.mapper());
  EXPECT_EQ(ReasonOf(lender.RegisterOne(k_, kBytes).status()), "ticket_unknown");
  lender->DropExpiredTickets();
  EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == descriptors_; }));
}

TEST_F(Registering, AtMostSoManyTicketsWait) {
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(lender_->AddTicket(Duplicate(k_)).ok());
  EXPECT_EQ(ReasonOf(lender_->AddTicket(Duplicate(k_)).status()), "quota_bytes");
  lender_->DropTickets();
  std::vector<UniqueFd> fds;
  for (int i = 0; i < 8; ++i) fds.push_back(Duplicate(k_));
  for (int i = 0; i < 26; ++i) ASSERT_TRUE(lender_->AddTicket(Duplicate(k_)).ok());
  EXPECT_EQ(ReasonOf(lender_->AddTickets(std::move(fds)).status()), "quota_bytes")
      << "all or nothing";
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(lender_->AddTicket(Duplicate(k_)).ok());
  lender_->DropTickets();
  EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == descriptors_; }));
}

// Sources: https://github.com/triton-inference-server/server/pull/7093 ,
// https://github.com/triton-inference-server/server/pull/8170
TEST_F(Registering, RangesOutsideTheFile) {
  struct Case {
    uint64_t offset, size;
    const char* reason;
  };
  for (const Case& c :
       {Case{0, kBytes + 1, "fd_too_small"}, Case{kPage, kBytes, "fd_too_small"},
        Case{kBytes, 1, "fd_too_small"}, Case{kBytes + kPage, kPage, "fd_too_small"},
        Case{~uint64_t{0} - 0x3F, 0x80, "fd_too_small"},
        Case{~uint64_t{0} - kPage + 1, kPage, "fd_too_small"},
        Case{0, ~uint64_t{0}, "fd_too_small"}, Case{64, kPage, "field_invalid"}}) {
    SCOPED_TRACE(testing::Message() << c.offset << " + " << c.size);
    RegisterSpec spec = GoodSpec();
    spec.caches.clear();
    spec.regions[1].offset = c.offset;
    spec.regions[1].size = c.size;
    const absl::Status status = Refusal(spec);
    EXPECT_EQ(ReasonOf(status), c.reason);
    EXPECT_EQ(FieldOf(status).substr(0, 11), "regions[1].");
  }
}

TEST_F(Registering, ReadOnlyDescriptorForWriting) {
  const UniqueFd readable(
      ::open(("/proc/self/fd/" + std::to_string(k_.get())).c_str(), O_RDONLY | O_CLOEXEC));
  RegisterSpec spec;
  spec.regions.push_back(
      {lender_->AddTicket(Duplicate(readable)).value(), 0, kBytes, true, 0, 0, ""});
  const absl::StatusOr<RegisteredIds> refused = lender_.Register(spec);
  EXPECT_EQ(ReasonOf(refused.status()), "region_read_only");
  EXPECT_EQ(FieldOf(refused.status()), "regions[0].access");
  spec.regions[0].ticket = lender_->AddTicket(Duplicate(readable)).value();
  spec.regions[0].writable = false;
  const absl::StatusOr<RegisteredIds> ids = lender_.Register(spec);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_FALSE(lender_->Pin(ids->region_ids[0])->writable());
}

// Sources: https://github.com/kvcache-ai/Mooncake/issues/3546 ,
// https://github.com/LMCache/LMCache/pull/4677
TEST_F(Registering, FingerprintsCatchAForgottenOffset) {
  const UniqueFd fd = Memfd(4 * kPage);
  for (uint64_t i = 0; i < 4; ++i) {
    const std::string content(kPage, static_cast<char>(i + 1));
    ASSERT_EQ(::pwrite(fd.get(), content.data(), kPage, static_cast<off_t>(i * kPage)),
              static_cast<ssize_t>(kPage));
  }
  const auto spec_of = [&](uint64_t offset, char expected) {
    RegisterSpec spec;
    spec.regions.push_back(
        {lender_.Ticket(fd), offset, kPage, true, 0, kPage - 64, std::string(64, expected)});
    return spec;
  };
  const absl::Status status = lender_.Register(spec_of(0, 3)).status();
  EXPECT_EQ(ReasonOf(status), "fingerprint_mismatch");
  EXPECT_EQ(FieldOf(status), "regions[0].fingerprint");
  EXPECT_EQ(CountMappings(kName), mappings_);
  for (uint64_t i = 0; i < 4; ++i) {
    const auto ids = lender_.Register(spec_of(i * kPage, static_cast<char>(i + 1)));
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(lender_->Pin(ids->region_ids[0])->data()[0], static_cast<std::byte>(i + 1));
  }
  for (const uint64_t offset : {kPage - 63, kPage, ~uint64_t{0}}) {
    RegisterSpec spec = spec_of(0, 1);
    spec.regions[0].fingerprint_offset = offset;
    EXPECT_EQ(ReasonOf(lender_.Register(spec).status()), "range_out_of_region") << offset;
  }
}

TEST_F(Registering, AFailureInTheLastStepUndoesTheMappings) {
  RegisterSpec spec = GoodSpec();
  spec.regions[1].fingerprint = "not there";
  EXPECT_EQ(ReasonOf(Refusal(spec)), "fingerprint_mismatch");
}

TEST_F(Registering, CacheErrorsNameTheCacheAndLeaveNothing) {
  RegisterSpec spec = GoodSpec();
  spec.caches.push_back(spec.caches[0]);
  spec.caches[1].spec.layers[0].v.offset = kBytes;
  absl::Status status = Refusal(spec);
  EXPECT_EQ(ReasonOf(status), "range_out_of_region");
  EXPECT_EQ(FieldOf(status), "caches[1].spec.layers[0].v");

  for (const uint64_t id : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 32) - 1, uint64_t{1} << 32}) {
    SCOPED_TRACE(id);
    spec = GoodSpec();
    spec.caches[0].spec.layers[0].k.region_id = id;
    status = Refusal(spec);
    EXPECT_EQ(ReasonOf(status), "memory_unknown");
    EXPECT_EQ(FieldOf(status), "caches[0].spec.layers[0].k.region_id");
  }
}

TEST_F(Registering, MemoryLentTwiceCannotBeKAndV) {
  RegisterSpec spec = GoodSpec();
  lender_->DropTickets();
  for (RegionRequest& region : spec.regions) region.ticket = lender_.Ticket(k_);
  EXPECT_EQ(ReasonOf(Refusal(spec)), "view_overlap");
}

TEST_F(Registering, CachesMayUseEarlierRegions) {
  const uint64_t k = lender_.RegisterOne(k_, kBytes).value();
  RegisterSpec spec;
  spec.regions.push_back({lender_.Ticket(v_), 0, kBytes, true, 0, 0, ""});
  CacheSpec cache;
  cache.layers = {SmallLayer(0, {k, 0, SmallLayout(4)}, {1, 0, SmallLayout(4)})};
  spec.caches.push_back({cache, 0});
  EXPECT_TRUE(lender_.Register(spec).ok());
  // In another session the same id is nothing.
  Lender other(MemoryQuota{}, &lender_.mapper());
  spec.regions[0].ticket = other.Ticket(v_);
  EXPECT_EQ(ReasonOf(other.Register(spec).status()), "memory_unknown");
  // And after it was unregistered too.
  ASSERT_TRUE(lender_.UnregisterIds({k}).ok());
  spec.regions[0].ticket = lender_.Ticket(v_);
  EXPECT_EQ(ReasonOf(lender_.Register(spec).status()), "memory_unknown");
}

// Sources: https://github.com/openucx/ucx/issues/3192 ,
// https://github.com/pmodels/mpich/issues/7977
TEST_F(Registering, OpenedTwiceClosedTwiceAndNoneClosedToMakeRoom) {
  MemoryQuota quota;
  quota.max_regions = 16;
  Lender lender(quota, &lender_.mapper());
  std::vector<uint64_t> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(lender.RegisterOne(k_, kBytes).value());
  const RegionPin in_use = lender->Pin(ids[0]).value();
  const absl::Status status = lender.RegisterOne(k_, kBytes).status();
  EXPECT_EQ(ReasonOf(status), "quota_bytes");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorInfo(status)->got, 17u);
  EXPECT_EQ(CountMappings(kName), mappings_ + 16);
  // The same memory is registered 16 times; closing one leaves the others.
  EXPECT_EQ(lender.UnregisterIds({ids[3]})->closed, 1u);
  EXPECT_EQ(CountMappings(kName), mappings_ + 15);
  EXPECT_EQ(lender->Pin(ids[4])->data()[0], std::byte{0});
  EXPECT_EQ(in_use.data()[0], std::byte{0});
  EXPECT_TRUE(lender.RegisterOne(k_, kBytes).ok());
}

TEST_F(Registering, QuotasOfBytesAndCaches) {
  MemoryQuota quota;
  quota.max_host_bytes = 3 * kBytes;
  quota.max_caches = 1;
  Lender lender(quota, &lender_.mapper());
  ASSERT_TRUE(lender.RegisterOne(k_, kBytes).ok());
  const uint64_t second = lender.RegisterOne(k_, kBytes).value();
  EXPECT_TRUE(lender.RegisterOne(k_, kBytes).ok()) << "exactly at the limit";
  absl::Status status = lender.RegisterOne(k_, 1).status();
  EXPECT_EQ(ReasonOf(status), "quota_bytes");
  EXPECT_EQ(FieldOf(status), "regions[0].size");
  ASSERT_TRUE(lender.UnregisterIds({second}).ok());
  RegisterSpec spec;
  CacheSpec cache;
  spec.regions.push_back({lender.Ticket(k_), 0, kBytes, true, 0, 0, ""});
  cache.layers = {SmallLayer(0, {1, 0, SmallLayout(4)}, {1, kBytes / 2, SmallLayout(4)})};
  spec.caches = {{cache, 0}, {cache, 1}};
  status = lender.Register(spec).status();
  EXPECT_EQ(ReasonOf(status), "quota_bytes");
  EXPECT_EQ(FieldOf(status), "caches");
  spec.caches.pop_back();
  spec.regions[0].ticket = lender.Ticket(k_);
  EXPECT_TRUE(lender.Register(spec).ok());
}

// A retiring region is still mapped, so it still counts.
TEST_F(Registering, RetiringRegionsCountAgainstTheQuota) {
  MemoryQuota quota;
  quota.max_regions = 1;
  Lender lender(quota, &lender_.mapper());
  const uint64_t id = lender.RegisterOne(k_, kBytes).value();
  {
    const RegionPin pin = lender->Pin(id).value();
    EXPECT_EQ(ReasonOf(lender.UnregisterIds({id}, 1).status()), "region_retiring");
    EXPECT_EQ(ReasonOf(lender.RegisterOne(k_, kBytes).status()), "quota_bytes");
  }
  ASSERT_TRUE(lender.UnregisterIds({id}).ok());
  EXPECT_TRUE(lender.RegisterOne(k_, kBytes).ok());
}

TEST_F(Registering, AfterTheEndNothingIsTaken) {
  RegisterSpec spec = GoodSpec();
  std::promise<void> closed;
  lender_->RetireAll([&] { closed.set_value(); });
  closed.get_future().wait();
  EXPECT_EQ(ReasonOf(Refusal(spec)), "session_ended");
  EXPECT_EQ(ReasonOf(lender_->AddTicket(Duplicate(k_)).status()), "session_ended");
  EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == descriptors_; }));
}

#ifdef KVTRIAGE_FAULT_POINTS
// Holds a registration between its mappings and its commit, and does something meanwhile.
class RegisteringSlowly : public Registering {
 protected:
  absl::StatusOr<RegisteredIds> RegisterWhile(RegisterSpec spec,
                                              const std::function<void()>& meanwhile) {
    EXPECT_TRUE(SetFaults("memory.after_map:delay=100").ok());
    std::promise<absl::StatusOr<RegisteredIds>> answer;
    lender_->Register(std::move(spec), [&](auto ids) { answer.set_value(std::move(ids)); });
    EXPECT_TRUE(WaitUntil([] { return FaultPointPassings("memory.after_map") > 0; }));
    meanwhile();
    absl::StatusOr<RegisteredIds> ids = answer.get_future().get();
    EXPECT_TRUE(SetFaults("").ok());
    return ids;
  }
};

TEST_F(RegisteringSlowly, AnEarlierRegionThatRetiresMeanwhileIsUnknown) {
  const uint64_t older = lender_.RegisterOne(k_, kBytes).value();
  RegisterSpec spec;
  spec.regions.push_back({lender_.Ticket(v_), 0, kBytes, true, 0, 0, ""});
  CacheSpec cache;
  cache.layers = {SmallLayer(0, {older, 0, SmallLayout(4)}, {1, 0, SmallLayout(4)})};
  spec.caches.push_back({cache, 0});
  std::promise<void> closed;
  UnregisterSpec retire;
  retire.region_ids = {older};
  const auto ids = RegisterWhile(
      spec, [&] { lender_->Unregister(retire, 10'000, [&](auto) { closed.set_value(); }); });
  EXPECT_EQ(ReasonOf(ids.status()), "memory_unknown");
  closed.get_future().wait();
  lender_.Settle();
  EXPECT_EQ(CountMappings(kName), mappings_);
  EXPECT_EQ(lender_.observer().mapped, 0u);
  EXPECT_TRUE(lender_->ListCaches().empty());
}

TEST_F(RegisteringSlowly, ASessionThatEndsMeanwhileGetsNothing) {
  std::promise<void> closed;
  const auto ids =
      RegisterWhile(GoodSpec(), [&] { lender_->RetireAll([&] { closed.set_value(); }); });
  EXPECT_EQ(ReasonOf(ids.status()), "session_ended");
  closed.get_future().wait();
  EXPECT_EQ(CountMappings(kName), mappings_);
  EXPECT_EQ(lender_.observer().mapped, 0u);
  EXPECT_EQ(lender_.observer().retiring, 0);
}

TEST_F(Registering, PassesItsFaultPoints) {
  ASSERT_TRUE(SetFaults("").ok());
  ASSERT_TRUE(lender_.Register(GoodSpec()).ok());
  EXPECT_EQ(FaultPointPassings("memory.after_map"), 2u);
  EXPECT_EQ(FaultPointPassings("memory.after_fingerprint"), 2u);
  EXPECT_EQ(FaultPointPassings("memory.before_reply"), 1u);
}
#endif

}  // namespace
}  // namespace kvtriage
