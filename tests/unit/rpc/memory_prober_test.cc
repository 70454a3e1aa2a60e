#include "service/rpc/memory_prober.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/splitmix64.h"
#include "service/validate/limits.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

uint64_t Fnv(std::string_view text) { return Fnv1a64(std::as_bytes(std::span(text))); }

TEST(MemoryProber, ChecksumIsFnv1a64) {
  EXPECT_EQ(Fnv(""), 0xcbf29ce484222325u);  // values of the algorithm's own test suite
  EXPECT_EQ(Fnv("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Fnv("foobar"), 0x85944171f73967e8u);
}

TEST(MemoryProber, PatternIsSplitmixOfSeedPlusIndex) {
  for (const size_t bytes : {1u, 7u, 8u, 9u, 64u, 100u}) {
    std::vector<std::byte> memory(bytes + 8, std::byte{0xAA});
    WritePattern(std::span(memory).first(bytes), 5);
    for (size_t i = 0; i < bytes; ++i) {
      const uint64_t word = SplitMix64(5 + i / 8, 0);
      EXPECT_EQ(memory[i], static_cast<std::byte>(word >> (8 * (i % 8)))) << i << " of " << bytes;
    }
    for (size_t i = bytes; i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{0xAA});
  }
  EXPECT_EQ(SplitMix64(0, 0), 0xe220a8397b1dcdafu) << "the published first number of seed 0";
}

TEST(MemoryProber, RequestsAreChecked) {
  v1::ProbeMemoryRequest request;
  request.set_region_id(1);
  request.set_length(8);
  EXPECT_EQ(ReasonOf(ParseProbe(request).status()), "enum_unspecified");
  request.set_op(static_cast<v1::ProbeMemoryRequest::Op>(9));
  EXPECT_EQ(ReasonOf(ParseProbe(request).status()), "enum_unspecified");
  request.set_op(v1::ProbeMemoryRequest::OP_WRITE_PATTERN);
  EXPECT_TRUE(ParseProbe(request)->write);
  request.set_length(0);
  EXPECT_EQ(ReasonOf(ParseProbe(request).status()), "field_missing");
  request.set_length(kMaxProbeBytes);
  EXPECT_TRUE(ParseProbe(request).ok());
  request.set_length(kMaxProbeBytes + 1);
  EXPECT_EQ(ReasonOf(ParseProbe(request).status()), "too_many");
  EXPECT_EQ(FieldOf(ParseProbe(request).status()), "length");
}

}  // namespace
}  // namespace kvtriage
