#include "client/tensor_files/gguf.h"

#include <fstream>
#include <functional>
#include <random>
#include <span>

#include "client/tensor_files/tensor_values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gguf_content.h"
#include "tests/support/temp_dir.h"

namespace kvtriage {
namespace {

using testing::HasSubstr;

class Gguf : public testing::Test {
 protected:
  absl::StatusOr<GgufFile> Open(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return GgufFile::Open(path_);
  }
  const TempDir directory_;
  const std::string path_ = directory_.File("model.gguf");
};

GgufContent Good() {
  GgufContent content;
  content.AddText("general.architecture", "llama");
  content.AddCount("count", 7);
  content.AddNumber("number", 0.5f);
  // An array of two strings and one of three 16-bit numbers: skipped.
  content.metadata.emplace_back("words", BytesOfNumber<uint32_t>(9) + BytesOfNumber<uint32_t>(8) +
                                             BytesOfNumber<uint64_t>(2) + GgufText("ab") +
                                             GgufText(""));
  content.metadata.emplace_back("shorts", BytesOfNumber<uint32_t>(9) + BytesOfNumber<uint32_t>(2) +
                                              BytesOfNumber<uint64_t>(3) + "aabbcc");
  content.metadata.emplace_back("below", BytesOfNumber<uint32_t>(5) + BytesOfNumber<int32_t>(-3));
  content.tensors = {{"a", {2, 1}, 0, "12345678"}, {"b", {3}, 1, "abcdef"}};
  return content;
}

TEST_F(Gguf, ReadsMetadataAndTensors) {
  const auto file = Open(Good().File());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Text("general.architecture"), "llama");
  EXPECT_EQ(file->Count("count"), 7u);
  EXPECT_EQ(file->Number("count"), 7.0);
  EXPECT_EQ(file->Number("number"), 0.5);
  EXPECT_EQ(file->Number("below"), -3.0);
  EXPECT_EQ(file->Count("below"), std::nullopt);
  EXPECT_EQ(file->Count("general.architecture"), std::nullopt);
  EXPECT_TRUE(file->Has("words"));
  EXPECT_EQ(file->Text("words"), std::nullopt);
  EXPECT_FALSE(file->Has("none"));
  const TensorEntry* const b = file->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, "F16");
  EXPECT_EQ(b->shape, (std::vector<uint64_t>{3}));
  std::string bytes(b->bytes, '\0');
  ASSERT_TRUE(file->Read(*b, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, "abcdef");
  EXPECT_EQ(file->Find("a")->shape, (std::vector<uint64_t>{2, 1}));
}

TEST_F(Gguf, AnotherAlignmentIsRespected) {
  GgufContent content = Good();
  content.alignment = 256;
  content.AddCount("general.alignment", 256);
  const auto file = Open(content.File());
  ASSERT_TRUE(file.ok()) << file.status();
  std::string bytes(6, '\0');
  ASSERT_TRUE(file->Read(*file->Find("b"), std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, "abcdef");
}

TEST_F(Gguf, WhatIsWrongIsNamed) {
  const struct {
    std::function<void(GgufContent&)> change;
    const char* named;
  } cases[] = {
      {[](auto& c) { c.magic = "GGML"; }, "not a GGUF file"},
      {[](auto& c) { c.version = 1; }, "GGUF version 1"},
      {[](auto& c) { c.version = 0x03000000; }, "GGUF version"},  // the other byte order
      {[](auto& c) { c.metadata[1].second[0] = 13; }, "metadata 1 of 6"},
      {[](auto& c) { c.metadata[3].second[8] = 100; }, "metadata 3 of 6"},   // 100 words
      {[](auto& c) { c.metadata[3].second[4] = 9; }, "metadata 3 of 6"},     // arrays of arrays
      {[](auto& c) { c.metadata[4].second[15] = 127; }, "metadata 4 of 6"},  // 2^62 numbers
      {[](auto& c) { c.AddCount("general.alignment", 0); }, "general.alignment"},
      {[](auto& c) { c.AddCount("general.alignment", 1 << 30); }, "general.alignment"},
      {[](auto& c) { c.tensors[1].name = "a"; }, "tensor twice: a"},
      {[](auto& c) { c.tensors[1].shape = {4}; }, "tensor b: its data does not fit"},
      {[](auto& c) {
         c.tensors[1].shape = {uint64_t{1} << 40, uint64_t{1} << 40};
       },
       "tensor b: its shape"},
      {[](auto& c) { c.tensors[1].shape = {uint64_t{1} << 63}; },
       "tensor b: its data does not fit"},
      {[](auto& c) {
         c.tensors[1].shape = {1, 1, 1, 1, 3};
       },
       "tensor b: more than 4 axes"},
      {[](auto& c) { c.tensors[1].type = 8; }, "tensor b: its shape is no whole number of blocks"},
  };
  for (const auto& wrong : cases) {
    GgufContent content = Good();
    wrong.change(content);
    const auto file = Open(content.File());
    ASSERT_FALSE(file.ok()) << wrong.named;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(wrong.named));
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(path_));
  }
  EXPECT_EQ(GgufFile::Open(directory_.File("none")).status().code(), absl::StatusCode::kNotFound);
}

// A type that is not read is listed by its name, and is nobody's trouble until it is needed.
TEST_F(Gguf, UnreadableTypesAreNamedWhenTheyAreNeeded) {
  for (const auto& [type, name] : {std::pair<uint32_t, const char*>{12, "Q4_K"},
                                   {14, "Q6_K"},
                                   {23, "IQ4_XS"},
                                   {4, "unknown type 4"},
                                   {99, "unknown type 99"}}) {
    GgufContent content = Good();
    content.tensors[1].type = type;
    const auto file = Open(content.File());
    ASSERT_TRUE(file.ok()) << file.status();
    const absl::Status status = CheckReadable(file->Find("b")->dtype);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

TEST_F(Gguf, CutAnywhereItIsRefusedAndRandomDamageNeverDoesMoreThanFail) {
  const std::string good = Good().File();
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(Open(good.substr(0, bytes)).ok()) << bytes;
  }
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::string content = good;
    for (uint32_t i = 0; i < 1 + random() % 4; ++i) {
      content[random() % content.size()] = static_cast<char>(random());
    }
    const auto file = Open(content);
    if (!file.ok()) continue;
    if (const TensorEntry* const entry = file->Find("b")) {
      ASSERT_LE(entry->bytes, content.size());
      std::vector<std::byte> bytes(entry->bytes);
      EXPECT_TRUE(file->Read(*entry, bytes).ok());
    }
  }
}

// ---- numbers, worked by hand ------------------------------------------------------------------

std::vector<float> Widen(const char* dtype, const std::string& bytes) {
  std::vector<float> values;
  EXPECT_TRUE(WidenTo(dtype, std::as_bytes(std::span(bytes)), values).ok());
  return values;
}

TEST(TensorValues, PlainTypes) {
  EXPECT_EQ(Widen("F32", BytesOfNumber(1.5f) + BytesOfNumber(-2.0f)),
            (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(Widen("F16", BytesOfNumber<uint16_t>(0x3E00)), std::vector<float>{1.5f});
  EXPECT_EQ(Widen("BF16", BytesOfNumber<uint16_t>(0xC000)), std::vector<float>{-2.0f});
}

TEST(TensorValues, QuantisedBlocks) {
  const std::string half = BytesOfNumber<uint16_t>(0x3800);  // 0.5
  std::string codes(32, '\0');
  codes[0] = 4;
  codes[31] = static_cast<char>(-127);
  std::vector<float> values = Widen("Q8_0", half + codes + half + codes);
  ASSERT_EQ(values.size(), 64u);
  EXPECT_EQ(values[0], 2.0f);
  EXPECT_EQ(values[1], 0.0f);
  EXPECT_EQ(values[63], -63.5f);

  std::string nibbles(16, '\x88');
  nibbles[0] = '\x3F';  // number 0 has code 15, number 16 has code 3
  values = Widen("Q4_0", half + nibbles);
  ASSERT_EQ(values.size(), 32u);
  EXPECT_EQ(values[0], 3.5f);
  EXPECT_EQ(values[16], -2.5f);
  EXPECT_EQ(values[1], 0.0f);

  values = Widen("Q4_1", half + BytesOfNumber<uint16_t>(0xC000) + nibbles);  // from -2 on
  ASSERT_EQ(values.size(), 32u);
  EXPECT_EQ(values[0], 5.5f);
  EXPECT_EQ(values[16], -0.5f);
  EXPECT_EQ(values[31], 2.0f);
}

}  // namespace
}  // namespace kvtriage
