// Queries, keys and values of one layer of a golden case, and its attention in float64.
#ifndef KVTRIAGE_TESTS_GOLDEN_CASE_INPUTS_H_
#define KVTRIAGE_TESTS_GOLDEN_CASE_INPUTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/placed_cache.h"

namespace kvtriage {

struct CaseShape {
  uint32_t q_heads = 0, kv_heads = 0, rows = 0, window = 0, dk = 0, dv = 0;
  uint32_t hidden = 0;  // 0: no output projection
};

struct CaseInputs {
  CaseShape shape;
  std::vector<float> q;                  // [q_heads, window, dk]
  std::vector<float> k;                  // [kv_heads, rows, dk]
  std::vector<float> v;                  // [kv_heads, rows, dv]
  std::vector<float> output_projection;  // [hidden, q_heads * dv]
  std::vector<float> q_before;           // [q_heads, rows, dk]: every row's, before RoPE
};

// How a case's cache is stored, where that is not the type of its other inputs.
struct CaseStorage {
  std::optional<DType> f8;
  CacheScales scales;
  bool v_in_k = false;  // V is the first channels of K
};

CaseStorage StorageOf(const nlohmann::json& file);

CaseShape ShapeOf(const nlohmann::json& shape);

// The tensors of golden case `number` after its knobs; queries before RoPE only when asked for.
CaseInputs MakeCaseInputs(const CaseShape& shape, uint64_t number,
                          const std::vector<std::string>& knobs, const CaseStorage& storage,
                          bool before_rope = false);

// How logits are made, and what joins the softmax; one number per query head, or none.
struct CaseLogits {
  float softcap = 0;
  std::vector<double> alibi_slopes, sink_logits;
};

CaseLogits LogitsOf(const nlohmann::json& file);

// Causal softmax attention of the newest `window` rows.
struct CaseAttention {
  std::vector<double> a, z;  // [q_heads, window, rows]; 0 where not visible
  std::vector<double> o;     // [q_heads, window, dv]
  std::vector<double> lse;   // [q_heads, window], natural
};

CaseAttention Attend(const CaseInputs& inputs, double scale, const CaseLogits& logits);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_GOLDEN_CASE_INPUTS_H_
