#include "service/policy/compress_spec.h"

#include "gtest/gtest.h"

namespace kvtriage {
namespace {

SequenceSpec WithSharing(Sharing sharing) {
  SequenceSpec sequence;
  sequence.sharing = sharing;
  return sequence;
}

TEST(IsShared, FollowsWhatTheWorkerSaid) {
  EXPECT_FALSE(WithSharing(Sharing::kAllPrivate).IsShared(0));

  SequenceSpec prefix = WithSharing(Sharing::kPrefix);
  prefix.shared_blocks = 2;
  EXPECT_TRUE(prefix.IsShared(1));
  EXPECT_FALSE(prefix.IsShared(2));

  SequenceSpec bitmap = WithSharing(Sharing::kBitmap);
  bitmap.shared_bitmap = {0b00000100, 0b10000000};
  EXPECT_TRUE(bitmap.IsShared(2));
  EXPECT_TRUE(bitmap.IsShared(15));
  EXPECT_FALSE(bitmap.IsShared(3));
}

TEST(IsShared, DoubtMeansShared) {
  EXPECT_TRUE(WithSharing(Sharing::kUnknown).IsShared(0));
  EXPECT_TRUE(WithSharing(Sharing::kUnspecified).IsShared(0));
  SequenceSpec bitmap = WithSharing(Sharing::kBitmap);
  bitmap.shared_bitmap = {0};
  EXPECT_FALSE(bitmap.IsShared(7));
  EXPECT_TRUE(bitmap.IsShared(8));
}

}  // namespace
}  // namespace kvtriage
