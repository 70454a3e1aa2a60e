#include "service/memory/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/process_tables.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

constexpr uint64_t kEpoch = 0x1122334455667788;
constexpr uint64_t kSessionId = 0x99AABBCCDDEEFF01;

class ClientView {
 public:
  explicit ClientView(const Ledger& ledger) : bytes_(ledger.bytes()) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, ledger.fd(), 0);
    if (data_ == MAP_FAILED) std::abort();
  }
  ~ClientView() { ::munmap(data_, bytes_); }
  const uint8_t* at(uint64_t offset) const { return static_cast<const uint8_t*>(data_) + offset; }
  template <typename T>
  T Read(uint64_t offset) const {
    T value;
    std::memcpy(&value, at(offset), sizeof(value));
    return value;
  }
  uint32_t Acquire(uint64_t offset) const {
    auto* field = reinterpret_cast<uint32_t*>(const_cast<uint8_t*>(at(offset)));
    return std::atomic_ref<uint32_t>(*field).load(std::memory_order_acquire);
  }

 private:
  uint64_t bytes_;
  void* data_;
};

std::unique_ptr<Ledger> MakeLedger(uint32_t bytes = 1 << 20, uint32_t slots = 4) {
  return Ledger::Create(kEpoch, kSessionId, bytes, slots).value();
}

IdempotencyKey SomeKey() {
  IdempotencyKey key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(0xA0 + i);
  return key;
}

TEST(Ledger, HeaderByteByByte) {
  const auto ledger = MakeLedger(4096, 3);
  const ClientView view(*ledger);
  EXPECT_EQ(std::memcmp(view.at(0), "KVTL", 4), 0);
  EXPECT_EQ(view.Read<uint32_t>(4), 1u);
  EXPECT_EQ(view.Read<uint64_t>(8), kEpoch);
  EXPECT_EQ(view.Read<uint32_t>(16), 3u);
  EXPECT_EQ(view.Read<uint32_t>(20), 1344u);  // (4096 - 64) / 3 = 1344 = 21 * 64
  EXPECT_EQ(view.Read<uint64_t>(24), kSessionId);
  EXPECT_EQ(view.Read<uint32_t>(32), 1u);  // LIVE
  for (uint64_t i = 36; i < 4096; ++i) ASSERT_EQ(*view.at(i), 0) << i;
  ledger->CloseSession();
  EXPECT_EQ(view.Acquire(32), 2u);
}

TEST(Ledger, SlotBytesAreRoundedDownToTheAlignment) {
  const auto ledger = MakeLedger(1 << 20, 4);
  const ClientView view(*ledger);
  EXPECT_EQ(view.Read<uint32_t>(20), 262080u);  // (1048576 - 64) / 4 = 262128, down to 64
}

TEST(Ledger, SlotByteByByte) {
  const auto ledger = MakeLedger(1 << 16, 2);
  const ClientView view(*ledger);
  const uint64_t slot = 64 + view.Read<uint32_t>(20);  // slot 1
  const std::vector<LedgerUnitId> units = {{7, 0}, {7, 5}, {uint64_t{1} << 40, 0}};
  ledger->Open(1, wire::LedgerOp::kCompress, SomeKey(), 0xDEADBEEF01, units, 2);
  EXPECT_EQ(view.Read<uint32_t>(slot + 0), 1u);  // OPEN
  EXPECT_EQ(view.Read<uint32_t>(slot + 4), 1u);  // compress
  EXPECT_EQ(std::memcmp(view.at(slot + 8), SomeKey().data(), 16), 0);
  EXPECT_EQ(view.Read<uint64_t>(slot + 24), 0xDEADBEEF01u);
  EXPECT_EQ(view.Read<uint32_t>(slot + 32), 3u);
  EXPECT_EQ(view.Read<uint32_t>(slot + 36), 2u);
  EXPECT_EQ(view.Read<uint32_t>(slot + 40), 64u);
  EXPECT_EQ(view.Read<uint32_t>(slot + 44), 64u + 3 * 16);
  for (uint64_t i = 48; i < 64; ++i) EXPECT_EQ(*view.at(slot + i), 0);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(view.Read<uint32_t>(slot + 64 + 16 * i), 1u);  // PENDING
    EXPECT_EQ(view.Read<uint32_t>(slot + 68 + 16 * i), units[i].layer);
    EXPECT_EQ(view.Read<uint64_t>(slot + 72 + 16 * i), units[i].sequence_id);
  }

  const std::vector<uint32_t> counts = {11, 13};
  ledger->SetCounts(1, 2, counts);
  ledger->SetUnit(1, 2, wire::LedgerUnit::kMoving);
  EXPECT_EQ(view.Read<uint32_t>(slot + 64 + 32), 2u);
  ledger->SetUnit(1, 2, wire::LedgerUnit::kDone);
  ledger->SetUnit(1, 0, wire::LedgerUnit::kUnharmed);
  EXPECT_EQ(view.Read<uint32_t>(slot + 64 + 32), 3u);
  EXPECT_EQ(view.Read<uint32_t>(slot + 64), 4u);
  const uint64_t counts_at = slot + 64 + 3 * 16;
  EXPECT_EQ(view.Read<uint32_t>(counts_at + 4 * 4), 11u);
  EXPECT_EQ(view.Read<uint32_t>(counts_at + 5 * 4), 13u);
  ledger->Close(1);
  EXPECT_EQ(view.Read<uint32_t>(slot), 2u);
  EXPECT_EQ(view.Read<uint32_t>(64), 0u) << "slot 0 was not touched";
}

TEST(Ledger, AnOlderJobsCountsDoNotShineThrough) {
  const auto ledger = MakeLedger(1 << 16, 1);
  const ClientView view(*ledger);
  const std::vector<LedgerUnitId> units = {{1, 0}, {1, 1}};
  ledger->Open(0, wire::LedgerOp::kCompress, SomeKey(), 1, units, 1);
  ledger->SetCounts(0, 0, std::vector<uint32_t>{5});
  ledger->SetCounts(0, 1, std::vector<uint32_t>{6});
  ledger->Close(0);
  ledger->Open(0, wire::LedgerOp::kCompress, SomeKey(), 2, units, 1);
  EXPECT_EQ(view.Read<uint32_t>(64 + 64 + 32), 0u);
  EXPECT_EQ(view.Read<uint32_t>(64 + 64 + 36), 0u);
}

TEST(Ledger, FitsSaysHowManyUnitsASlotHolds) {
  const auto ledger = MakeLedger(1 << 20, 4);
  // 262080 - 64 bytes for units of 16 + 4 * 8: 5458. That is 80 layers of 8 heads for 68 sequences.
  EXPECT_TRUE(ledger->CheckFits(80 * 68, 8).ok());
  EXPECT_TRUE(ledger->CheckFits(5458, 8).ok());
  const absl::Status over = ledger->CheckFits(5459, 8);
  EXPECT_EQ(ReasonOf(over), "ledger_too_small");
  EXPECT_EQ(FieldOf(over), "act.in_place.ledger_slot");
  EXPECT_EQ(GetErrorInfo(over)->got, 5459u);
  EXPECT_EQ(GetErrorInfo(over)->limit, 5458u);
  for (const uint64_t units : {uint64_t{1} << 32, uint64_t{1} << 60, ~uint64_t{0}}) {
    EXPECT_EQ(ReasonOf(ledger->CheckFits(units, 1)), "ledger_too_small");
    EXPECT_EQ(ReasonOf(ledger->CheckFits(1, units)), "ledger_too_small");
    EXPECT_EQ(ReasonOf(ledger->CheckFits(units, units)), "ledger_too_small");
  }
}

TEST(Ledger, AFullSlotStaysInsideItself) {
  const auto ledger = MakeLedger(4096, 2);
  const ClientView view(*ledger);
  const uint32_t slot_bytes = view.Read<uint32_t>(20);
  const uint32_t fit = (slot_bytes - 64) / (16 + 4 * 3);
  ASSERT_TRUE(ledger->CheckFits(fit, 3).ok());
  ASSERT_FALSE(ledger->CheckFits(fit + 1, 3).ok());
  const std::vector<LedgerUnitId> units(fit, {9, 9});
  ledger->Open(0, wire::LedgerOp::kCompress, SomeKey(), 1, units, 3);
  for (uint32_t i = 0; i < fit; ++i) ledger->SetCounts(0, i, std::vector<uint32_t>(3, ~0u));
  for (uint64_t i = 64 + slot_bytes; i < 4096; ++i) ASSERT_EQ(*view.at(i), 0) << i;
}

TEST(Ledger, ClientCannotMapOrWriteItWritable) {
  const auto ledger = MakeLedger();
  const uint64_t bytes = ledger->bytes();
  EXPECT_EQ(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ledger->fd(), 0),
            MAP_FAILED);
  const std::string path = "/proc/self/fd/" + std::to_string(ledger->fd());
  const UniqueFd reopened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(reopened.valid());
  EXPECT_EQ(::mmap(nullptr, bytes, PROT_WRITE, MAP_SHARED, reopened.get(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(reopened.get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(reopened.get(), 0), -1);
  EXPECT_EQ(::ftruncate(reopened.get(), 4 * bytes), -1);
  EXPECT_EQ(::fcntl(reopened.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(::fallocate(reopened.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  // A mapping for reading cannot be made writable later.
  void* view = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, reopened.get(), 0);
  ASSERT_NE(view, MAP_FAILED);
  EXPECT_EQ(::mprotect(view, bytes, PROT_READ | PROT_WRITE), -1);
  ::munmap(view, bytes);
}

TEST(Ledger, IdleOneCostsOnePage) {
  const auto ledger = MakeLedger();
  struct stat info;
  ASSERT_EQ(::fstat(ledger->fd(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 2 * 4096);
}

TEST(Ledger, GivesEverythingBack) {
  const size_t descriptors = CountDescriptors();
  const size_t mappings = CountMappings("kvtriage-ledger");
  { const auto ledger = MakeLedger(); }
  EXPECT_EQ(CountDescriptors(), descriptors);
  EXPECT_EQ(CountMappings("kvtriage-ledger"), mappings);
}

TEST(Ledger, SizesWithoutRoomAreRefused) {
  for (const auto& [bytes, slots] :
       std::map<uint32_t, uint32_t>{{0, 1}, {63, 1}, {191, 1}, {4096, 0}, {4095, 32}}) {
    EXPECT_EQ(ReasonOf(Ledger::Create(1, 1, bytes, slots).status()), "internal") << bytes;
  }
  EXPECT_TRUE(Ledger::Create(1, 1, 192, 1).ok());
}

// A reader that sees a state must see everything stored before it, at any moment of the job.
TEST(Ledger, WhoeverSeesAStateSeesWhatCameBefore) {
  constexpr uint32_t kUnits = 8;
  const auto ledger = MakeLedger(1 << 16, 1);
  const ClientView view(*ledger);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> seen_done{0};
  std::thread reader([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (uint32_t unit = 0; unit < kUnits; ++unit) {
        const uint64_t record = 64 + 64 + 16 * unit;
        const uint32_t job = view.Acquire(64 + 24);
        const uint32_t count_before = view.Acquire(64 + 64 + 16 * kUnits + 4 * unit);
        if (view.Acquire(record) != 3) continue;
        // DONE: its count is there, and it is the job's own (they only grow).
        const uint32_t count = view.Acquire(64 + 64 + 16 * kUnits + 4 * unit);
        // The next job has begun meanwhile, and may be as far as this one was.
        if (view.Acquire(record) != 3 || view.Acquire(64 + 24) != job) continue;
        EXPECT_GE(count, count_before);
        EXPECT_GT(count, 0u);
        seen_done.fetch_add(1, std::memory_order_relaxed);
      }
    }
  });
  const std::vector<LedgerUnitId> units(kUnits, {1, 1});
  for (uint32_t job = 1; job < 2000 || seen_done.load() == 0; ++job) {
    ledger->Open(0, wire::LedgerOp::kCompress, SomeKey(), job, units, 1);
    for (uint32_t unit = 0; unit < kUnits; ++unit) {
      ledger->SetCounts(0, unit, std::vector<uint32_t>{job});
      ledger->SetUnit(0, unit, wire::LedgerUnit::kMoving);
      ledger->SetUnit(0, unit, wire::LedgerUnit::kDone);
    }
    ledger->Close(0);
  }
  stop = true;
  reader.join();
}

}  // namespace
}  // namespace kvtriage
