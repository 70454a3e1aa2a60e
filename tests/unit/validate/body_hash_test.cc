#include "service/validate/body_hash.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

TEST(BodyHash, IgnoresTheHeaderOnly) {
  const v1::CompressRequest request = ValidCompress();
  v1::CompressRequest other_key = request;
  other_key.mutable_header()->set_idempotency_key("fedcba9876543210");
  v1::CompressRequest no_header = request;
  no_header.clear_header();
  EXPECT_EQ(BodyHash(request), BodyHash(other_key));
  EXPECT_EQ(BodyHash(request), BodyHash(no_header));
  EXPECT_EQ(BodyHash(request).bytes, no_header.ByteSizeLong());
  EXPECT_EQ(request.header().idempotency_key(), "0123456789abcdef");  // the argument is untouched
}

TEST(BodyHash, EveryChangedByteCounts) {
  v1::CompressRequest request = ValidCompress();
  std::set<std::pair<uint64_t, uint64_t>> seen;
  std::string table(64, '\0');
  for (size_t bit = 0; bit < table.size() * 8; ++bit) {
    table[bit / 8] = static_cast<char>(1 << (bit % 8));
    request.mutable_sequences(0)->mutable_table()->set_inline_le(table);
    const BodyDigest digest = BodyHash(request);
    EXPECT_TRUE(seen.insert({digest.low, digest.high}).second) << "bit " << bit;
    table[bit / 8] = '\0';
  }
}

TEST(BodyHash, LengthsOfZerosDiffer) {
  v1::Int32Array array;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (size_t bytes = 0; bytes < 64; ++bytes) {
    array.set_inline_le(std::string(bytes, '\0'));
    const BodyDigest digest = BodyHash(array);
    EXPECT_TRUE(seen.insert({digest.low, digest.high}).second) << bytes;
  }
}

TEST(BodyHash, HalvesAreIndependent) {
  const BodyDigest digest = BodyHash(ValidRegister());
  EXPECT_NE(digest.low, digest.high);
  EXPECT_EQ(digest, BodyHash(ValidRegister()));
  EXPECT_NE(digest, BodyHash(ValidCompress()));
}

// A field we do not know could be what tells two requests apart.
TEST(BodyHash, UnknownFieldsCount) {
  v1::CompressRequest request = ValidCompress();
  const BodyDigest before = BodyHash(request);
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(12, 1);
  EXPECT_NE(BodyHash(request), before);
}

}  // namespace
}  // namespace kvtriage
