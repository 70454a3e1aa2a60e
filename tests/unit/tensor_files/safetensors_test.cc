#include "client/tensor_files/safetensors.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cli/dump_file.h"

namespace kvtriage::cli {
namespace {

using testing::HasSubstr;

absl::Status OpenStatus(const std::string& content) {
  const TemporaryFile file(content);
  const auto opened = SafetensorsFile::Open(file.path());
  if (!opened.ok()) {
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(file.path()))
        << "errors name the file";
  }
  return opened.status();
}

std::string Header(const std::string& entry) { return "{\"x\":" + entry + "}"; }

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const TemporaryFile file(WithHeader(
      R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]}})",
      "____abcdefgh"));
  const auto opened = SafetensorsFile::Open(file.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->metadata().at("a"), "b");
  const TensorEntry* const entry = opened->Find("x");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->shape, (std::vector<uint64_t>{2, 1}));
  std::string bytes(entry->bytes, '\0');
  ASSERT_TRUE(opened->Read(*entry, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, "abcdefgh");
  EXPECT_EQ(opened->Find("y"), nullptr);
}

TEST(Safetensors, RefusesWhatIsNotOne) {
  EXPECT_FALSE(OpenStatus("").ok());
  EXPECT_FALSE(OpenStatus("1234567").ok());
  EXPECT_FALSE(OpenStatus("PK\x03\x04 some archive that is long enough").ok());
  EXPECT_FALSE(OpenStatus(WithHeader("[1, 2]", "")).ok());
  EXPECT_FALSE(OpenStatus(WithHeader("{\"x\":", "")).ok());
  EXPECT_FALSE(SafetensorsFile::Open("/").ok());
  EXPECT_EQ(SafetensorsFile::Open("/no/such/file").status().code(), absl::StatusCode::kNotFound);
}

TEST(Safetensors, AnAnnouncedHeaderIsNotBelieved) {
  for (const uint64_t bytes : {uint64_t{100}, uint64_t{5} << 20, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string content(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    EXPECT_THAT(std::string(OpenStatus(content + "{}").message()), HasSubstr("truncated"));
  }
}

TEST(Safetensors, ATensorThatEndsOutsideTheFileIsRefused) {
  const auto status = OpenStatus(
      WithHeader(Header(R"({"dtype":"F16","shape":[8],"data_offsets":[0,16]})"), "short"));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor x"));
  EXPECT_FALSE(OpenStatus(WithHeader(Header(R"({"dtype":"F16","shape":[8],"data_offsets":[16,0]})"),
                                     std::string(16, ' ')))
                   .ok());
}

TEST(Safetensors, AShapeThatDoesNotFitItsBytesIsRefused) {
  for (const char* shape : {"[7]", "[9]", "[]", "[4294967296,4294967296,2]", "[-1]", "[1.5]",
                            "[\"8\"]", "8", "[1,1,1,1,1,1,1,1,8]"}) {
    const std::string entry =
        std::string(R"({"dtype":"F16","data_offsets":[0,16],"shape":)") + shape + "}";
    EXPECT_FALSE(OpenStatus(WithHeader(Header(entry), std::string(16, ' '))).ok()) << shape;
  }
  EXPECT_FALSE(OpenStatus(WithHeader(Header(R"({"dtype":"F17","shape":[8],"data_offsets":[0,16]})"),
                                     std::string(16, ' ')))
                   .ok());
}

TEST(Safetensors, RandomDamageNeverDoesMoreThanFail) {
  const std::string good = CacheDumpContent().File();
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::string content = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
    for (uint32_t i = 0; i < 1 + random() % 8 && !content.empty(); ++i) {
      content[random() % content.size()] = static_cast<char>(random());
    }
    const TemporaryFile file(content);
    const auto opened = SafetensorsFile::Open(file.path());
    if (!opened.ok()) continue;
    if (const TensorEntry* entry = opened->Find("layers.7.k")) {
      ASSERT_LE(entry->bytes, content.size());
      std::vector<std::byte> bytes(entry->bytes);
      EXPECT_TRUE(opened->Read(*entry, bytes).ok());
    }
  }
}

}  // namespace
}  // namespace kvtriage::cli
