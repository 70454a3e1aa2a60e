// The public headers in one file, without gRPC or protobuf on the include path's account.
#include "kvtriage/cache_description.h"
#include "kvtriage/compress.h"
#include "kvtriage/device_memory.h"
#include "kvtriage/error_details.h"
#include "kvtriage/group.h"
#include "kvtriage/host_memory.h"
#include "kvtriage/observe.h"
#include "kvtriage/policy.h"
#include "kvtriage/recompute.h"
#include "kvtriage/server_info.h"
#include "kvtriage/session.h"

#include "gtest/gtest.h"

#if defined(CUDART_VERSION) || defined(CUDA_VERSION) || \
    defined(KVTRIAGE_KERNELS_CUDA_CUDA_DECLARATIONS_H_)
#error "a public header of the client pulls in CUDA"
#endif
#if defined(GRPC_GRPC_H) || defined(GRPCPP_CHANNEL_H) || defined(GOOGLE_PROTOBUF_MESSAGE_LITE_H__)
#error "a public header of the client pulls in gRPC or protobuf"
#endif

namespace kvtriage::client {
namespace {

TEST(PublicHeaders, DenseDescriptionsHaveTheStridesOfTheirExtents) {
  const ViewSpec view = ContiguousView(Region{}, 64, 2, 10, 8, DType::kBF16);
  EXPECT_EQ(view.elem_stride, 2u);
  EXPECT_EQ(view.slot_stride, 16u);
  EXPECT_EQ(view.head_stride, 160u);
  EXPECT_EQ(view.block_slots, 10u);
  const TensorSpec tensor = DenseTensor(Region{}, 0, DType::kF32, 2, 3, 4, 5);
  EXPECT_EQ(tensor.elem_stride, 4u);
  EXPECT_EQ(tensor.head_stride, 20u);
  EXPECT_EQ(tensor.row_stride, 80u);
  EXPECT_EQ(tensor.layer_stride, 240u);
}

}  // namespace
}  // namespace kvtriage::client
