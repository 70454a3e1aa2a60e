// Registrations that name device memory: all or nothing, over the mappers of several devices.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/memory/cuda_lender.h"

namespace kvtriage {
namespace {

using CudaRegistering = CudaLending;

// K in region `k` (its index in the call, from 1), V in region `v`.
RegisterSpec::Cache CacheIn(uint64_t k, uint64_t v, uint64_t v_offset = 0, uint32_t blocks = 4) {
  RegisterSpec::Cache cache;
  cache.spec.num_layers = 1;
  cache.spec.layers = {
      SmallLayer(0, {k, 0, SmallLayout(blocks)}, {v, v_offset, SmallLayout(blocks)})};
  return cache;
}

TEST_F(CudaRegistering, CachesLieInDeviceRegions) {
  Begin();
  RegisterSpec spec = Of({Whole()});
  spec.caches = {CacheIn(1, 1, 4 * kSmallBlockBytes)};
  const auto ids = lender_->Register(spec);
  ASSERT_TRUE(ids.ok()) << ids.status();
  const std::vector<RegionListing> listed = (*lender_)->ListRegions();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].memory, 1u);
  EXPECT_EQ(listed[0].size, kExported);
  EXPECT_EQ((*lender_)->FindCache(ids->cache_ids[0]).value()->spec.layers[0].k.region_id,
            ids->region_ids[0]);
}

TEST_F(CudaRegistering, TheSameMemoryLentTwiceIsSeenToOverlap) {
  Begin();
  RegisterSpec spec = Of({Part(exporter_, 0, 2048), Part(exporter_, 512, 2048)});
  spec.caches = {CacheIn(1, 2)};  // V begins 512 bytes into K
  EXPECT_EQ(Refusal(spec), "view_overlap caches[0].spec.layers[0].v");
  spec.regions[1].cuda->base_offset = 1024;
  const auto older = lender_->Register(spec);
  ASSERT_TRUE(older.ok()) << older.status();
  // And with what an earlier call has lent: its second region is the very same memory.
  RegisterSpec again = Of({Part(exporter_, 1024, 2048)});
  again.caches = {CacheIn(1, older->region_ids[1])};
  EXPECT_EQ(Refusal(again), "view_overlap caches[0].spec.layers[0].v");
  again.caches = {CacheIn(1, older->region_ids[0])};
  EXPECT_TRUE(lender_->Register(again).ok());
}

TEST_F(CudaRegistering, ViewsOnDifferentDevicesAreRefused) {
  Begin("devices=2");
  RegisterSpec spec = Of({Part(exporter_, 0, 1024), Part(exporter_, 1024, 1024)});
  spec.regions[1].cuda->device_uuid = device(2).facts().uuid;
  spec.caches = {CacheIn(1, 2)};
  EXPECT_EQ(Refusal(spec), "mixed_memory caches[0].spec.layers[0].v");
  spec.caches.clear();
  EXPECT_TRUE(lender_->Register(spec).ok()) << "regions alone may";
}

TEST_F(CudaRegistering, HostAndDeviceMemoryDoNotMixInACache) {
  Begin();
  const UniqueFd fd = MakeLentMemfd(kPage);
  RegisterSpec spec = Of({Whole(), {lender_->Ticket(fd), 0, kPage, true, 0, 0, ""}});
  spec.caches = {CacheIn(1, 2)};
  EXPECT_EQ(Refusal(spec), "mixed_memory caches[0].spec.layers[0].v");
  spec.caches.clear();
  spec.regions[1].ticket = lender_->Ticket(fd);
  EXPECT_TRUE(lender_->Register(spec).ok());
  EXPECT_EQ((*lender_)->ListRegions().size(), 2u);
}

TEST_F(CudaRegistering, WhatWasOpenedOnOneDeviceIsClosedWhenAnotherFails) {
  Begin("devices=2 cudaIpcOpenMemHandle@2:error=205");
  RegisterSpec spec = Of({Whole(), Whole()});
  spec.regions[1].cuda->device_uuid = device(2).facts().uuid;
  EXPECT_EQ(Refusal(spec), "map_failed regions[1].cuda_ipc.handle");
  EXPECT_EQ(Count("cudaIpcCloseMemHandle"), 1u);
  EXPECT_EQ(lender_->observer().mapped, 0u);
  EXPECT_TRUE((*lender_)->ListRegions().empty());
}

TEST_F(CudaRegistering, AFailureOfTheHostPartClosesTheDevicePart) {
  Begin();
  const UniqueFd fd = MakeLentMemfd(kPage);
  RegisterSpec spec = Of({Whole(), {lender_->Ticket(fd), 0, kPage, true, 0, 0, "wrong"}});
  EXPECT_EQ(Refusal(spec), "fingerprint_mismatch regions[1].fingerprint");
  EXPECT_EQ(Count("cudaIpcOpenMemHandle"), 1u);
  EXPECT_EQ(Count("cudaIpcCloseMemHandle"), 1u);
}

TEST_F(CudaRegistering, CheapChecksComeBeforeTheDriver) {
  Begin();
  RegisterSpec spec = Of({Whole(), Whole()});
  spec.regions[1].cuda->device_uuid = "GPU-00000000-0000-0000-0000-000000000000";
  EXPECT_EQ(Refusal(spec), "gpu_not_visible regions[1].cuda_ipc.device_uuid");
  spec = Of({Whole(), {77, 0, kPage, true, 0, 0, ""}});
  EXPECT_EQ(Refusal(spec), "ticket_unknown regions[1].host.ticket");
  spec = Of({Whole()});
  spec.regions[0].cuda->base_offset = ~uint64_t{0};
  EXPECT_EQ(Refusal(spec), "range_out_of_region regions[0].cuda_ipc.base_offset");
  EXPECT_EQ(Count("cudaIpcOpenMemHandle"), 0u);
}

TEST_F(CudaRegistering, TheQuotaCountsDeviceMemoryToo) {
  Begin();
  MemoryQuota quota;
  quota.max_host_bytes = 2 * kExported - 1;
  lender_.emplace(quota, nullptr, &*devices_);
  EXPECT_EQ(Refusal(Of({Whole(), Whole()})), "quota_bytes regions[1].size");
  EXPECT_TRUE(lender_->Register(Of({Whole()})).ok());
  EXPECT_EQ(Refusal(Of({Whole()})), "quota_bytes regions[0].size");
}

// Both pass the first check while neither is counted; only one may pass the second.
TEST_F(CudaRegistering, TwoAtATimeDoNotOvershootTheQuota) {
  Begin("cudaIpcOpenMemHandle@1:wait=100");
  MemoryQuota quota;
  quota.max_regions = 1;
  lender_.emplace(quota, nullptr, &*devices_);
  std::promise<std::string> first;
  (*lender_)->Register(Of({Whole()}), [&](auto ids) { first.set_value(ReasonOf(ids.status())); });
  const std::string second = ReasonOf(lender_->Register(Of({Whole()})).status());
  EXPECT_EQ(first.get_future().get(), "ok");
  EXPECT_EQ(second, "quota_bytes");
  EXPECT_EQ((*lender_)->ListRegions().size(), 1u);
}

TEST_F(CudaRegistering, TheSessionsEndWaitsForARegistrationUnderWay) {
  Begin("cudaIpcOpenMemHandle@1:wait=100");
  std::promise<std::string> registered;
  (*lender_)->Register(Of({Whole()}),
                       [&](auto ids) { registered.set_value(ReasonOf(ids.status())); });
  EXPECT_TRUE(WaitUntil([&] { return device().mapper().BusyMs() > 0; }));
  std::promise<uint64_t> open;
  (*lender_)->RetireAll([&] { open.set_value(Count("mappings")); });
  EXPECT_EQ(open.get_future().get(), 0u);
  EXPECT_EQ(registered.get_future().get(), "session_ended");
}

TEST_F(CudaRegistering, WithoutDevicesItSaysWhy) {
  Begin();
  const DeviceList none(absl::Status(Error(ErrorReason::kNoDevice, "", "built without CUDA")));
  RegionRequest whole = Whole();
  lender_.emplace(MemoryQuota(), nullptr, &none);
  const absl::Status refused = lender_->Register(Of({whole})).status();
  EXPECT_EQ(ReasonOf(refused), "no_device");
  EXPECT_EQ(refused.message(), "built without CUDA");
  lender_.emplace();
  EXPECT_EQ(Refusal(Of({whole})), "no_device regions[0].cuda_ipc.device_uuid");
}

}  // namespace
}  // namespace kvtriage
