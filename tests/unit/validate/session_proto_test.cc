#include "service/validate/session_proto.h"

#include "gtest/gtest.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParseHello, GivesThePlainValues) {
  const auto hello = ParseHello(ValidHello());
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->api_revision, 1u);
  EXPECT_EQ(hello->client, "kvtriage-cpp/0.1.0");
  EXPECT_EQ(hello->rank, 1u);
  EXPECT_EQ(hello->world_size, 2u);
}

TEST(ParseHello, FirstMessageMustBeHello) {
  v1::AttachRequest request;
  ExpectRefusal(ParseHello(request).status(), kInvalid, ErrorReason::kFieldInvalid, "hello");
  request.mutable_goodbye();
  ExpectRefusal(ParseHello(request).status(), kInvalid, ErrorReason::kFieldInvalid, "hello");
}

TEST(ParseHello, RevisionsMustMeet) {
  const struct {
    uint32_t min, max;
    uint64_t got;
    const char* field;
  } apart[] = {{2, 3, 2, "hello.min_api_revision"}, {0, 0, 0, "hello.max_api_revision"}};
  for (const auto& c : apart) {
    v1::AttachRequest request = ValidHello();
    request.mutable_hello()->set_min_api_revision(c.min);
    request.mutable_hello()->set_max_api_revision(c.max);
    const absl::Status status = ParseHello(request).status();
    ExpectRefusal(status, absl::StatusCode::kFailedPrecondition, ErrorReason::kApiRevision,
                  c.field);
    EXPECT_EQ(GetErrorInfo(status)->got, c.got);
    EXPECT_EQ(GetErrorInfo(status)->limit, 1u);
  }
  v1::AttachRequest backwards = ValidHello();
  backwards.mutable_hello()->set_min_api_revision(2);
  backwards.mutable_hello()->set_max_api_revision(1);
  ExpectRefusal(ParseHello(backwards).status(), kInvalid, ErrorReason::kFieldInvalid,
                "hello.min_api_revision");
}

TEST(ParseHello, ClientNameIsSafeToLog) {
  v1::AttachRequest request = ValidHello();
  request.mutable_hello()->set_client("");
  ExpectRefusal(ParseHello(request).status(), kInvalid, ErrorReason::kFieldMissing, "hello.client");
  request.mutable_hello()->set_client(std::string(64, 'a'));
  EXPECT_TRUE(ParseHello(request).ok());
  for (const std::string& bad : {std::string(65, 'a'), std::string("a b"), std::string("a\n"),
                                 std::string("a\"b"), std::string("a\0b", 3)}) {
    request.mutable_hello()->set_client(bad);
    ExpectRefusal(ParseHello(request).status(), kInvalid, ErrorReason::kFieldInvalid,
                  "hello.client");
  }
}

TEST(ParseHello, RankIsBelowTheWorldSize) {
  v1::AttachRequest request = ValidHello();
  request.mutable_hello()->set_rank(2);
  ExpectRefusal(ParseHello(request).status(), kInvalid, ErrorReason::kFieldInvalid, "hello.rank");
  request.mutable_hello()->set_rank(0);
  request.mutable_hello()->set_world_size(0);
  EXPECT_TRUE(ParseHello(request).ok());
}

}  // namespace
}  // namespace kvtriage
