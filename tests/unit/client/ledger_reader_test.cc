#include "client/cpp/ledger_reader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "tests/unit/client/ledger_image.h"

namespace kvtriage::client {
namespace {

using wire::LedgerJob;
using wire::LedgerUnit;

const IdempotencyKey kKey = {1, 2, 3};
const IdempotencyKey kOther = {9};

TEST(LedgerReader, ChecksTheHeader) {
  LedgerImage image;
  const LedgerReader reader(image.bytes(), image.slots());
  EXPECT_TRUE(reader.Check(LedgerImage::kEpoch, LedgerImage::kSession).ok());
  EXPECT_FALSE(reader.Check(LedgerImage::kEpoch + 1, LedgerImage::kSession).ok());
  EXPECT_FALSE(reader.Check(LedgerImage::kEpoch, LedgerImage::kSession + 1).ok());
  image.header().slot_bytes += wire::kSlotAlignment;
  EXPECT_FALSE(reader.Check(LedgerImage::kEpoch, LedgerImage::kSession).ok());
  image = LedgerImage();
  image.header().version = 2;
  EXPECT_FALSE(
      LedgerReader(image.bytes(), 4).Check(LedgerImage::kEpoch, LedgerImage::kSession).ok());
}

TEST(LedgerReader, TooSmallAMappingIsRefusedNotRead) {
  for (const size_t bytes : {size_t{0}, size_t{63}, size_t{64}, size_t{127}, size_t{64 + 63 * 4}}) {
    std::vector<uint64_t> memory(bytes / 8 + 1);
    const LedgerReader reader({reinterpret_cast<const std::byte*>(memory.data()), bytes}, 4);
    EXPECT_FALSE(reader.Check(0, 0).ok()) << bytes;
    EXPECT_FALSE(reader.SessionClosed()) << bytes;
    EXPECT_EQ(reader.Read(0, kKey, Writer::kQuiet).state, SlotState::kBroken) << bytes;
  }
}

TEST(LedgerReader, ReadsUnitsAndCounts) {
  LedgerImage image;
  image.Open(2, kKey, {5, 6}, 3, 2, LedgerUnit::kDone, LedgerJob::kClosed);
  for (uint32_t i = 0; i < 12; ++i) image.count(2, i) = 100 + i;
  image.unit(2, 4).state = static_cast<uint32_t>(LedgerUnit::kUnharmed);
  const SlotReading reading = LedgerReader(image.bytes(), 4).Read(2, kKey, Writer::kActive);
  ASSERT_EQ(reading.state, SlotState::kSettled);
  ASSERT_EQ(reading.units.size(), 6u);
  EXPECT_EQ(reading.units[3].sequence_id, 6u);
  EXPECT_EQ(reading.units[3].layer, 0u);
  EXPECT_EQ(reading.units[3].counts, (std::vector<uint32_t>{106, 107}));
  EXPECT_EQ(reading.units[4].state, LedgerUnit::kUnharmed);
}

// The service may be scoring still and move rows a moment later.
TEST(LedgerReader, AnActiveServiceSettlesNothingBeforeTheSlotIsClosed) {
  LedgerImage image;
  const LedgerReader reader(image.bytes(), 4);
  EXPECT_EQ(reader.Read(0, kKey, Writer::kActive).state, SlotState::kUnsettled);  // FREE
  image.Open(0, kKey, {5}, 1, 1, LedgerUnit::kDone, LedgerJob::kOpen);
  EXPECT_EQ(reader.Read(0, kKey, Writer::kActive).state, SlotState::kUnsettled);
  image.Open(0, kOther, {5}, 1, 1, LedgerUnit::kDone, LedgerJob::kClosed);
  EXPECT_EQ(reader.Read(0, kKey, Writer::kActive).state, SlotState::kUnsettled);
}

TEST(LedgerReader, AQuietServiceMakesWhatStandsThereFinal) {
  LedgerImage image;
  const LedgerReader reader(image.bytes(), 4);
  EXPECT_EQ(reader.Read(0, kKey, Writer::kQuiet).state, SlotState::kUntouched);  // FREE
  image.Open(0, kOther, {5}, 1, 1, LedgerUnit::kDone, LedgerJob::kClosed);
  EXPECT_EQ(reader.Read(0, kKey, Writer::kQuiet).state, SlotState::kUntouched);
  image.Open(0, kKey, {5}, 1, 1, LedgerUnit::kMoving, LedgerJob::kOpen);
  const SlotReading reading = reader.Read(0, kKey, Writer::kQuiet);
  ASSERT_EQ(reading.state, SlotState::kSettled);
  EXPECT_EQ(reading.units[0].state, LedgerUnit::kMoving);
}

// A stream's key is zero: another stream of the past must not pass for it.
TEST(LedgerReader, StreamsAreKnownByTheirJob) {
  LedgerImage image;
  image.Open(1, IdempotencyKey{}, {5}, 2, 1, wire::LedgerUnit::kDone, wire::LedgerJob::kClosed);
  image.slot(1).op = static_cast<uint32_t>(wire::LedgerOp::kCompressLayers);
  image.slot(1).job_id = 77;
  const LedgerReader reader(image.bytes(), 4);
  EXPECT_EQ(reader.ReadStream(1, 77, Writer::kActive).state, SlotState::kSettled);
  EXPECT_EQ(reader.ReadStream(1, 78, Writer::kActive).state, SlotState::kUnsettled);
  EXPECT_EQ(reader.ReadStream(1, 78, Writer::kQuiet).state, SlotState::kUntouched);
  image.slot(1).op = static_cast<uint32_t>(wire::LedgerOp::kCompress);
  EXPECT_EQ(reader.ReadStream(1, 77, Writer::kQuiet).state, SlotState::kUntouched);
}

TEST(LedgerReader, SeesTheSessionsEnd) {
  LedgerImage image;
  const LedgerReader reader(image.bytes(), 4);
  EXPECT_FALSE(reader.SessionClosed());
  image.header().session_state = static_cast<uint32_t>(wire::LedgerSession::kClosed);
  EXPECT_TRUE(reader.SessionClosed());
}

TEST(LedgerReader, OffsetsOutsideTheSlotAreBroken) {
  struct Change {
    const char* what;
    void (*apply)(wire::LedgerSlot&);
  };
  const Change changes[] = {
      {"units_off in the head", [](wire::LedgerSlot& s) { s.units_off = 8; }},
      {"units_off behind the slot", [](wire::LedgerSlot& s) { s.units_off = 1u << 20; }},
      {"units_off unaligned", [](wire::LedgerSlot& s) { s.units_off += 4; }},
      {"counts_off wraps", [](wire::LedgerSlot& s) { s.counts_off = 0xFFFFFFFCu; }},
      {"too many units", [](wire::LedgerSlot& s) { s.units = 0xFFFFFFFFu; }},
      {"too many counts", [](wire::LedgerSlot& s) { s.counts_per_unit = 0xFFFFFFFFu; }},
      {"no units", [](wire::LedgerSlot& s) { s.units = 0; }},
      {"unknown job state", [](wire::LedgerSlot& s) { s.job_state = 3; }},
  };
  for (const Change& change : changes) {
    LedgerImage image;
    image.Open(1, kKey, {5}, 2, 2, LedgerUnit::kDone, LedgerJob::kClosed);
    change.apply(image.slot(1));
    EXPECT_EQ(LedgerReader(image.bytes(), 4).Read(1, kKey, Writer::kQuiet).state,
              SlotState::kBroken)
        << change.what;
  }
  LedgerImage image;
  image.Open(1, kKey, {5}, 2, 2, LedgerUnit::kDone, LedgerJob::kClosed);
  image.unit(1, 1).state = 9;
  EXPECT_EQ(LedgerReader(image.bytes(), 4).Read(1, kKey, Writer::kQuiet).state, SlotState::kBroken);
  EXPECT_EQ(LedgerReader(image.bytes(), 4).Read(4, kKey, Writer::kQuiet).state, SlotState::kBroken);
}

// The bytes stand right before an unreadable page: a read outside ends the test program.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) : bytes_(bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    total_ = bytes + page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + bytes, page, PROT_NONE);
  }
  ~GuardedMemory() { munmap(base_, total_); }
  std::span<std::byte> bytes() { return {base_, bytes_}; }

 private:
  size_t bytes_, total_;
  std::byte* base_;
};

TEST(LedgerReader, GarbageNeverReadsOutsideNorClaimsMoreThanItsUnits) {
  GuardedMemory memory(65536);
  int settled = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto bytes = memory.bytes();
    for (size_t i = 0; i < bytes.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(bytes.data() + i, &word, sizeof(word));
    }
    const auto slots = static_cast<uint32_t>(1 + random() % 8);
    const LedgerReader reader(bytes, slots);
    // Half of the time the key and small numbers stand there, so that the unit parser is reached.
    const uint32_t slot = static_cast<uint32_t>(random() % slots);
    const size_t at = 64 + slot * (((bytes.size() - 64) / slots) & ~size_t{63});
    if (random() % 2 == 0) {
      wire::LedgerSlot head{};
      head.job_state = static_cast<uint32_t>(random() % 4);
      std::memcpy(head.idempotency_key, kKey.data(), kKey.size());
      head.units = static_cast<uint32_t>(random() % 200);
      head.counts_per_unit = static_cast<uint32_t>(random() % 40);
      head.units_off = static_cast<uint32_t>(random() % 8192) & ~7u;
      head.counts_off = static_cast<uint32_t>(random() % 8192) & ~3u;
      std::memcpy(bytes.data() + at, &head, sizeof(head));
      for (uint32_t i = 0; i < head.units && head.units_off + (i + 1) * 16 + at < bytes.size();
           ++i) {
        const uint32_t state = 1 + i % 4;
        std::memcpy(bytes.data() + at + head.units_off + i * 16, &state, sizeof(state));
      }
    }
    for (const Writer writer : {Writer::kActive, Writer::kQuiet}) {
      const SlotReading reading = reader.Read(slot, kKey, writer);
      if (reading.state == SlotState::kSettled) ++settled;
      EXPECT_EQ(reading.units.empty(), reading.state != SlotState::kSettled);
      for (const SlotUnit& unit : reading.units) {
        EXPECT_GE(static_cast<int>(unit.state), 1);
        EXPECT_LE(static_cast<int>(unit.state), 4);
      }
    }
    (void)reader.SessionClosed();
    (void)reader.Check(1, 2);
  }
  EXPECT_GT(settled, 50);  // the parser was reached
}

}  // namespace
}  // namespace kvtriage::client
