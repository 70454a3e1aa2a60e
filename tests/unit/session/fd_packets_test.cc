#include "service/session/fd_packets.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/unit/session/fd_client.h"

namespace kvtriage {
namespace {

template <typename T>
std::vector<std::byte> BytesOf(const T& packet) {
  const auto bytes = std::as_bytes(std::span(&packet, 1));
  return {bytes.begin(), bytes.end()};
}

TEST(FdPackets, HelloByteByByte) {
  SessionToken token;
  for (size_t i = 0; i < token.size(); ++i) token[i] = static_cast<uint8_t>(i + 1);
  std::vector<std::byte> expected(40);
  const uint8_t header[16] = {'K', 'V', 'F', 'D', 1, 0, 1, 0, 40, 0, 0, 0, 0, 0, 0, 0};
  std::memcpy(expected.data(), header, 16);
  std::memcpy(expected.data() + 16, token.data(), 24);
  EXPECT_EQ(BytesOf(MakeHello(token)), expected);
  const auto parsed = ParseFdRequest(expected, 0);
  ASSERT_TRUE(parsed && std::holds_alternative<wire::FdHello>(*parsed));
  EXPECT_EQ(std::memcmp(std::get<wire::FdHello>(*parsed).token, token.data(), 24), 0);
}

TEST(FdPackets, OfferByteByByte) {
  std::vector<std::byte> bytes(64);
  const uint8_t start[40] = {'K', 'V', 'F', 'D', 1, 0, 3, 0, 64, 0, 0, 0, 0, 0, 0, 0,  // header
                             8,   7,   6,   5,   4, 3, 2, 1, 2,  0, 0, 0, 1, 0, 0, 0,
                             1};  // tag, 2, kinds
  std::memcpy(bytes.data(), start, 40);
  const auto parsed = ParseFdRequest(bytes, 2);
  ASSERT_TRUE(parsed && std::holds_alternative<wire::FdOffer>(*parsed));
  EXPECT_EQ(std::get<wire::FdOffer>(*parsed).tag, 0x0102030405060708u);
  EXPECT_EQ(std::get<wire::FdOffer>(*parsed).count, 2u);
}

TEST(FdPackets, DescriptorsMustBeAsManyAsSaid) {
  const auto hello = BytesOf(MakeHello({}));
  EXPECT_TRUE(ParseFdRequest(hello, 0));
  EXPECT_FALSE(ParseFdRequest(hello, 1));
  for (uint32_t count = 0; count <= 9; ++count) {
    const auto offer = BytesOf(MakeOffer(count));
    for (size_t fds = 0; fds <= 9; ++fds) {
      EXPECT_EQ(ParseFdRequest(offer, fds).has_value(), count == fds && count >= 1 && count <= 8)
          << count << " " << fds;
    }
  }
  auto huge = MakeOffer(1);
  huge.count = ~0u;
  EXPECT_FALSE(ParseFdRequest(BytesOf(huge), 1));
}

TEST(FdPackets, KindsAreNotJudgedButUnusedOnesAreReserved) {
  auto offer = MakeOffer(2);
  offer.kind[1] = 77;
  EXPECT_TRUE(ParseFdRequest(BytesOf(offer), 2));
  offer.kind[2] = 1;
  EXPECT_FALSE(ParseFdRequest(BytesOf(offer), 2));
  offer.kind[2] = 0;
  offer.zero = 1;
  EXPECT_FALSE(ParseFdRequest(BytesOf(offer), 2));
}

TEST(FdPackets, EveryHeaderByteMatters) {
  for (const auto& good : {BytesOf(MakeHello({})), BytesOf(MakeOffer(1))}) {
    const size_t fds = good.size() == 64 ? 1 : 0;
    ASSERT_TRUE(ParseFdRequest(good, fds));
    for (size_t i = 0; i < 16; ++i) {
      auto bad = good;
      bad[i] ^= std::byte{0x40};
      EXPECT_FALSE(ParseFdRequest(bad, fds)) << i;
    }
  }
}

TEST(FdPackets, LengthsMustFit) {
  for (const auto& good : {BytesOf(MakeHello({})), BytesOf(MakeOffer(1))}) {
    const size_t fds = good.size() == 64 ? 1 : 0;
    for (size_t length = 0; length <= wire::kFdMaxPacket; ++length) {
      auto bytes = good;
      bytes.resize(length);
      EXPECT_EQ(ParseFdRequest(bytes, fds).has_value(), length == good.size()) << length;
      // Also when the packet says its own (wrong) length.
      if (length < 16) continue;
      const uint32_t said = static_cast<uint32_t>(length);
      std::memcpy(bytes.data() + 8, &said, 4);
      EXPECT_EQ(ParseFdRequest(bytes, fds).has_value(), length == good.size()) << length;
    }
  }
}

TEST(FdPackets, WhatOnlyServersSayIsRefused) {
  for (const uint16_t type : {0, 2, 4, 5, 6, 255}) {
    for (const size_t length : {32, 40, 64, 96}) {
      std::vector<std::byte> bytes(length);
      const auto header =
          BytesOf(wire::FdHeader{{'K', 'V', 'F', 'D'}, 1, type, static_cast<uint32_t>(length), 0});
      std::memcpy(bytes.data(), header.data(), 16);
      EXPECT_FALSE(ParseFdRequest(bytes, 0)) << type;
    }
  }
}

TEST(FdPackets, RandomBytesNeverPass) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes(random() % 260);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (bytes.size() >= 4 && i % 2 == 0) std::memcpy(bytes.data(), "KVFD", 4);
    EXPECT_FALSE(ParseFdRequest(bytes, random() % 9));
  }
}

}  // namespace
}  // namespace kvtriage
