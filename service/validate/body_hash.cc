#include "service/validate/body_hash.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "kernels/core/splitmix64.h"

namespace kvtriage {
namespace {

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
constexpr uint64_t kLowSeed = 0x6B76747269616765u;
constexpr uint64_t kHighSeed = 0x626F64796861736Bu;
constexpr size_t kDigitBytes = 7;  // below 2^56, so every digit is a residue of its own

uint64_t MulMod(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  const uint64_t folded =
      static_cast<uint64_t>(product & kPrime) + static_cast<uint64_t>(product >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

uint64_t DigitAt(std::string_view bytes, size_t at) {
  uint64_t digit = 0;
  const size_t end = std::min(bytes.size(), at + kDigitBytes);
  for (size_t i = end; i > at; --i) digit = digit << 8 | static_cast<uint8_t>(bytes[i - 1]);
  return digit;
}

// The bytes as the digits of a number in a large base, modulo the prime; the length comes first, so
// that trailing zeros count.
uint64_t Polynomial(std::string_view bytes, uint64_t seed) {
  const uint64_t base = SplitMix64(seed, 0) % (kPrime - 2) + 2;
  uint64_t sum = bytes.size() + 1;
  for (size_t at = 0; at < bytes.size(); at += kDigitBytes) {
    const uint64_t next = MulMod(sum, base) + DigitAt(bytes, at);
    sum = next >= kPrime ? next - kPrime : next;
  }
  return MulMod(sum, base);
}

std::string DeterministicBytes(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializePartialToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace

BodyDigest BodyHash(const google::protobuf::Message& request) {
  const std::unique_ptr<google::protobuf::Message> body(request.New());
  body->CopyFrom(request);
  if (const auto* header = body->GetDescriptor()->FindFieldByName("header"); header != nullptr) {
    body->GetReflection()->ClearField(body.get(), header);
  }
  const std::string bytes = DeterministicBytes(*body);
  return {bytes.size(), Polynomial(bytes, kLowSeed), Polynomial(bytes, kHighSeed)};
}

}  // namespace kvtriage
