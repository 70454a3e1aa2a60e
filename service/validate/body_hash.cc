#include "service/validate/body_hash.h"

#include <algorithm>
#include <cstring>
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
constexpr uint64_t kDigitMask = (uint64_t{1} << (8 * kDigitBytes)) - 1;

uint64_t MulMod(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  const uint64_t folded =
      static_cast<uint64_t>(product & kPrime) + static_cast<uint64_t>(product >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

uint64_t DigitAt(std::string_view bytes, size_t at) {
  uint64_t digit = 0;
  const size_t left = bytes.size() - at;
  if (left >= sizeof digit) {  // one load instead of a call
    std::memcpy(&digit, bytes.data() + at, sizeof digit);
    return digit & kDigitMask;
  }
  std::memcpy(&digit, bytes.data() + at, std::min(kDigitBytes, left));
  return digit;
}

// A polynomial whose coefficients are the digits, evaluated at a base drawn from a seed.
class Polynomial {
 public:
  Polynomial(uint64_t seed, uint64_t first)
      : base_(SplitMix64(seed, 0) % (kPrime - 2) + 2), sum_(first) {}

  void Add(uint64_t digit) {
    const uint64_t next = MulMod(sum_, base_) + digit;
    sum_ = next >= kPrime ? next - kPrime : next;
  }
  uint64_t value() const { return sum_; }

 private:
  uint64_t base_;
  uint64_t sum_;
};

// The length is the first digit, so that trailing zeros count. One pass: the two products of a step
// do not wait for each other.
BodyDigest Digest(std::string_view bytes) {
  Polynomial low(kLowSeed, bytes.size() + 1);
  Polynomial high(kHighSeed, bytes.size() + 1);
  for (size_t at = 0; at < bytes.size(); at += kDigitBytes) {
    const uint64_t digit = DigitAt(bytes, at);
    low.Add(digit);
    high.Add(digit);
  }
  low.Add(0);  // spreads the last digit over all bits
  high.Add(0);
  return {bytes.size(), low.value(), high.value()};
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
  return Digest(DeterministicBytes(*body));
}

BodyDigest LayerHash(const BodyDigest& open, uint32_t layer) {
  // Longer than any request, so no request has the same size.
  constexpr uint64_t kLayerBytes = uint64_t{1} << 32;
  const uint64_t numbers[] = {open.bytes, open.low, open.high, layer};
  BodyDigest digest =
      Digest(std::string_view(reinterpret_cast<const char*>(numbers), sizeof numbers));
  digest.bytes = kLayerBytes + open.bytes;
  return digest;
}

}  // namespace kvtriage
