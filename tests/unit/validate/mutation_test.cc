// Damaged requests: validation neither crashes nor blames itself, and every refusal is a proper
// one.
#include <map>
#include <string>

#include "google/protobuf/stubs/common.h"
#include "gtest/gtest.h"
#include "service/validate/body_hash.h"
#include "service/validate/compress_proto.h"
#include "service/validate/fuse_proto.h"
#include "service/validate/observe_proto.h"
#include "service/validate/recompute_proto.h"
#include "service/validate/region_proto.h"
#include "service/validate/rerotate_proto.h"
#include "service/validate/rewind_proto.h"
#include "service/validate/session_proto.h"
#include "tests/unit/validate/message_mutator.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

constexpr uint64_t kSeed = 0x6B7631;
constexpr int kRounds = 20'000;  // per kind of request

void ExpectProperRefusal(const absl::Status& status) {
  ASSERT_NE(status.code(), absl::StatusCode::kInternal) << status;
  ASSERT_NE(status.code(), absl::StatusCode::kUnknown) << status;
  const auto info = GetErrorInfo(status);
  ASSERT_TRUE(info.has_value()) << status;
  ASSERT_NE(info->reason, ErrorReason::kUnspecified);
  ASSERT_NE(info->reason, ErrorReason::kInternal);
  ASSERT_FALSE(info->field.empty()) << status;
  ASSERT_LE(status.message().size(), kMaxErrorTextBytes);
  // Our words and numbers only.
  ASSERT_EQ(info->field.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789.[]"),
            std::string::npos)
      << info->field;
}

// Mutates fields, then (every other round) the wire bytes; `parse` gives the status of one request.
template <typename Request, typename MakeValid, typename Parse>
void RunMutations(MakeValid make_valid, Parse parse, size_t least_reasons = 3) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
#if GOOGLE_PROTOBUF_VERSION < 4022000
  // Cut strings are not UTF-8 any more, and protobuf says so a thousand times.
  google::protobuf::SetLogHandler(nullptr);
#endif
  MessageMutator mutator(kSeed);
  int accepted = 0, refused = 0;
  std::map<ErrorReason, int> reasons;
  for (int round = 0; round < kRounds; ++round) {
    Request request = make_valid(round);
    const uint64_t changes = 1 + mutator.Below(3);
    for (uint64_t i = 0; i < changes; ++i) mutator.Mutate(request);
    if (round % 2 == 1) {
      std::string wire = request.SerializeAsString();
      mutator.MutateBytes(wire);
      if (!request.ParseFromString(wire)) continue;  // what gRPC refuses by itself
    }
    const absl::Status status = parse(request);
    if (status.ok()) {
      ++accepted;
      continue;
    }
    ++refused;
    ASSERT_NO_FATAL_FAILURE(ExpectProperRefusal(status)) << "round " << round;
    ++reasons[GetErrorInfo(status)->reason];
  }
  // The damage must be neither harmless nor always fatal at the first check.
  EXPECT_GT(accepted, kRounds / 50);
  EXPECT_GT(refused, kRounds / 20);
  EXPECT_GE(reasons.size(), least_reasons);
}

TEST(Mutations, Compress) {
  const auto make = [](int round) {
    return ValidCompressFrom(static_cast<v1::ScoreInputs::SourceCase>(1 + round % 5));
  };
  RunMutations<v1::CompressRequest>(make, [](const v1::CompressRequest& request) {
    (void)BodyHash(request);
    return ParseCompress(request, Limits(), {}).status();
  });
}

TEST(Mutations, Register) {
  const auto make = [](int round) {
    if (round % 4 == 0) return ValidCudaRegister();
    return round % 4 == 1 ? ValidRegister() : ValidLatentRegister();
  };
  RunMutations<v1::RegisterRegionsRequest>(make, [](const v1::RegisterRegionsRequest& request) {
    return ParseRegister(request, Limits()).status();
  });
}

TEST(Mutations, SelectRecompute) {
  RunMutations<v1::SelectRecomputeRequest>([](int) { return ValidSelectRecompute(); },
                                           [](const v1::SelectRecomputeRequest& request) {
                                             return ParseSelectRecompute(request).status();
                                           });
}

TEST(Mutations, Rerotate) {
  RunMutations<v1::RerotateRequest>(
      [](int) { return ValidRerotate(); },
      [](const v1::RerotateRequest& request) { return ParseRerotate(request, Limits()).status(); });
}

TEST(Mutations, Fuse) {
  RunMutations<v1::FuseRequest>(
      [](int) { return ValidFuse(); },
      [](const v1::FuseRequest& request) { return ParseFuse(request, Limits()).status(); });
}

TEST(Mutations, Observe) {
  const auto make = [](int round) {
    return ValidObserve(static_cast<v1::ScoreInputs::SourceCase>(1 + round % 5));
  };
  RunMutations<v1::ObserveRequest>(make, [](const v1::ObserveRequest& request) {
    return ParseObserve(request, Limits(), {}).status();
  });
}

TEST(Mutations, Rewind) {
  RunMutations<v1::RewindRequest>(
      [](int) { return ValidRewind(); },
      [](const v1::RewindRequest& request) { return ParseRewind(request).status(); },
      /*least_reasons=*/2);
}

TEST(Mutations, Hello) {
  RunMutations<v1::AttachRequest>(
      [](int) { return ValidHello(); },
      [](const v1::AttachRequest& request) { return ParseHello(request).status(); });
}

}  // namespace
}  // namespace kvtriage
