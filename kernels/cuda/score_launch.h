// What scoring by query rows is started with: the statistics of the rows where only queries are
// given (score_statistics.cuh, score_outputs.cuh), then the scores of all tokens
// (score_tokens.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/core/logit_rule.h"
#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/query_rows_launch.h"

namespace kvtriage {

inline constexpr uint32_t kScoreThreads = 128;

// What a (row, token) pair adds: A, A^2, and the forms of the four-in-one formula
// (kvtriage/kernels/score.h).
enum class ScoreTerm : uint8_t { kMass, kValue, kKey, kJoint, kDrop };

// What a query head's sum is multiplied with before heads are reduced.
enum class ValueWeight : uint8_t { kNone, kSquare, kMagnitude };

// What one part of the tokens gives for a row: its heaviest token, and the weights of the others
// relative to that one.
struct RowPart {
  double rest;
  float top;  // logit of the heaviest; -Inf: nothing is visible
  int32_t token;
};

// Whose rows may be copied in pieces of 16 bytes.
struct WideInputs {
  uint32_t k, v, q, o;
};

// One request. Arrays are [KV heads] first; rows and units as in QueryItem.
struct ScoreItem {
  QueryItem rows;
  LogitRule rule;
  DeviceTensor a, z;  // [rows, Hq, N]; base of `a` null: from products
  // First pass. Tokens [i * part_tokens, (i + 1) * part_tokens) are part i.
  uint32_t parts, part_tokens;
  RowPart* row_parts;   // [rows][parts]
  float* part_outputs;  // [parts][rows][dv]: sums of A v, of a dominant token apart
  float* rest_rows;     // [rows][dv]: output of all but the dominant token
  // Second pass; carried from batch to batch of the rows.
  float *scores, *mass, *carry;  // [N]
  uint32_t first_batch, last_batch;
  uint32_t largest, mean;  // over query heads; neither: the sum
  ValueWeight weight;
  WideInputs wide;  // for the tensor cores
};

// Sizes of the largest item of a launch.
struct ScoreSizes {
  uint32_t items = 0, heads = 0, units = 0, rows = 0, parts = 0;
  uint32_t tokens = 0;
  uint32_t tiles = 0;      // of tokens, for ScoreTokensKernel
  uint32_t row_elems = 0;  // of K and V
  uint32_t value_elems = 0;
  size_t key_bytes = 0, value_bytes = 0;  // of their tiles
};

cudaError_t LaunchRowParts(const ScoreItem* items, const ScoreSizes& sizes, cudaStream_t stream);
cudaError_t LaunchJoinRows(const ScoreItem* items, const ScoreSizes& sizes, cudaStream_t stream);
cudaError_t LaunchOutputParts(const ScoreItem* items, const ScoreSizes& sizes, cudaStream_t stream);
cudaError_t LaunchJoinOutputs(const ScoreItem* items, const ScoreSizes& sizes, cudaStream_t stream);
cudaError_t LaunchScoreTokens(ScoreTerm term, const ScoreItem* items, const ScoreSizes& sizes,
                              cudaStream_t stream);

// The same on tensor cores, for items that MmaTypeOf (score_mma.h) takes.
cudaError_t LaunchScoreMmaBf16(ScoreTerm term, const ScoreItem* items, const ScoreSizes& sizes,
                               cudaStream_t stream);
cudaError_t LaunchScoreMmaF16(ScoreTerm term, const ScoreItem* items, const ScoreSizes& sizes,
                              cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_LAUNCH_H_
