// Inputs for tests of the scorer: a cache, queries, and every form of attention made from them.
#ifndef KVTRIAGE_TESTS_UNIT_KERNELS_SCORE_PROBLEM_H_
#define KVTRIAGE_TESTS_UNIT_KERNELS_SCORE_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvtriage/kernels/score.h"
#include "tests/support/placed_cache.h"
#include "tests/support/plain_score.h"

namespace kvtriage {

struct ProblemShape {
  uint32_t q_heads = 4, kv_heads = 2, tokens = 64, rows = 16, dk = 16, dv = 24;
};

// Numbers are those of a golden case (tests/support/golden_inputs.h), exact in every type.
class ScoreProblem {
 public:
  ScoreProblem(const ProblemShape& shape, uint64_t case_number);
  // As above, with heads outermost: q [q_heads][rows][dk], k and v [kv_heads][tokens][..].
  ScoreProblem(const ProblemShape& shape, std::vector<double> q, std::vector<float> k,
               std::vector<float> v);

  // Where and how K and V lie from now on; the first place is one contiguous f32 block.
  void Place(const CacheLayout& layout, DType type, const CacheScales& scales = {});
  // K and V of a token side by side in one row.
  void PlaceInterleaved(DType type);

  // Types and order of the tensors from now on.
  void SetTensors(DType type, bool rows_first);

  // All rows vote. Memory belongs to the problem; the next Request may reuse it.
  ScoreRequest Request(AttentionSource source, const ScoreSpec& spec);

  const ProblemShape& shape() const { return shape_; }
  std::vector<double>& q() { return q_; }
  std::vector<float>& k() { return k_; }
  std::vector<float>& v() { return v_; }
  float scale() const { return scale_; }
  void set_scale(float scale) { scale_ = scale; }
  void set_row_limits(std::vector<int32_t> limits) { limits_ = std::move(limits); }
  // How logits are made from now on; one number per query head, empty: none.
  void set_softcap(float softcap) { softcap_ = softcap; }
  void set_sink_logits(std::vector<double> sinks) { sinks_ = std::move(sinks); }
  void set_alibi_slopes(std::vector<double> slopes) { slopes_ = std::move(slopes); }
  void set_rotation(const QueryRotation& rotation) { rotation_ = rotation; }
  void set_sliding_window(uint32_t rows) { sliding_window_ = rows; }
  LayerRows layer() const;

  // Tensors of the last request, [rows][heads][elems] or [heads][rows][elems].
  DenseTensor q_tensor, o_tensor, lse_tensor, a_tensor, z_tensor, sums_tensor;
  DenseTensor sink_tensor, slope_tensor;

 private:
  void MakeTensors(bool reads_values);
  void SetLogits(AttentionInput& input) const;

  ProblemShape shape_;
  std::vector<double> q_;
  std::vector<float> k_, v_;
  float scale_;
  std::vector<int32_t> limits_;
  float softcap_ = 0;
  std::vector<double> sinks_, slopes_;
  QueryRotation rotation_;
  uint32_t sliding_window_ = 0;
  DType tensor_type_ = DType::kF32;
  bool rows_first_ = true;
  std::unique_ptr<PlacedCache> cache_;
  std::vector<std::byte> interleaved_;
  std::vector<int32_t> interleaved_table_;
  LayerRows layer_;
};

// Why `result` is not what the oracle says within the specified tolerances; empty when it is.
std::string Difference(const ScoreResult& result, const PlainScores& plain);

// Whether both hold the same bits (NaN of any payload counts as equal).
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_KERNELS_SCORE_PROBLEM_H_
