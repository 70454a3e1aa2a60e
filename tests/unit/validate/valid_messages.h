// Requests that pass validation; tests change one thing and say what must come of it.
#ifndef KVTRIAGE_TESTS_UNIT_VALIDATE_VALID_MESSAGES_H_
#define KVTRIAGE_TESTS_UNIT_VALIDATE_VALID_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvtriage/v1/blend.pb.h"
#include "kvtriage/v1/memory.pb.h"
#include "kvtriage/v1/session.pb.h"
#include "kvtriage/v1/triage.pb.h"

namespace kvtriage {

// The bytes of an int32 array on the wire.
std::string Int32Bytes(const std::vector<int32_t>& values);

// Two sequences of 20 and 3 rows (4 query rows, 3 query rows), snapkv at half, Q alone, in place.
v1::CompressRequest ValidCompress();

// The same with another source of attention; every tensor of the source is there.
v1::CompressRequest ValidCompressFrom(v1::ScoreInputs::SourceCase source);

// One region, one cache of two layers (f16, 8 query heads, 2 KV heads of 64, one opaque companion).
v1::RegisterRegionsRequest ValidRegister();
// The same in an allocation of a CUDA device.
v1::RegisterRegionsRequest ValidCudaRegister();

// The same with latent rows: MLA layers of fp8 rows of 576 with a scale each, V their last 512
// elements.
v1::RegisterRegionsRequest ValidLatentRegister();

// 10 rows, prefix 4, a dense and a paged source, ratio 1/3, a previous layer, a gather.
v1::SelectRecomputeRequest ValidSelectRecompute();

// Rows 3 to 7 of a sequence of 20 rows, in place; 2 rows of 2 layers.
v1::RerotateRequest ValidRerotate();
v1::FuseRequest ValidFuse();

// The sequences of ValidCompress with 4 and 3 new rows, h2o down to 8 rows, in place; one draft row
// in the second.
v1::ObserveRequest ValidObserve(v1::ScoreInputs::SourceCase source = v1::ScoreInputs::kQuery);
v1::RewindRequest ValidRewind();

v1::AttachRequest ValidHello();

// A packed [layers, rows, heads, elems] f32 tensor.
v1::Tensor PackedTensor(uint32_t layers, uint32_t rows, uint32_t heads, uint32_t elems);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_VALIDATE_VALID_MESSAGES_H_
