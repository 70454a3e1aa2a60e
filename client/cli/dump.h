// A saved KV cache in the dump format that client/cli/README.md describes: shapes and metadata,
// checked; tensors are read when they are lent.
#ifndef KVTRIAGE_CLIENT_CLI_DUMP_H_
#define KVTRIAGE_CLIENT_CLI_DUMP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tensor_files/safetensors.h"
#include "kernels/core/dtype.h"
#include "kvtriage/cache_description.h"

namespace kvtriage::cli {

enum class DumpKind : uint8_t { kCache, kBlend };
enum class DumpLseBase : uint8_t { kE, k2 };

// One tensor of a dump: F16, BF16 or F32, two or three axes.
struct DumpTensor {
  TensorEntry entry;
  DType dtype = DType::kF32;
  uint64_t heads() const { return entry.shape[0]; }
  uint64_t rows() const { return entry.shape[1]; }
  uint64_t elems() const { return entry.shape.size() == 3 ? entry.shape[2] : 1; }
};

struct CacheLayer {
  uint32_t layer = 0;                           // the model's layer number
  DumpTensor k, v;                              // [Hk, N, dk], [Hk, N, dv]
  DumpTensor q;                                 // [Hq, W, dk]
  std::optional<DumpTensor> o, lse;             // [Hq, W, dv], [Hq, W]; together or not at all
  std::optional<DumpTensor> future_q;           // [Hq, F, dk]
  std::optional<DumpTensor> colsum_all;         // [Hq, N], F32
  std::optional<DumpTensor> output_projection;  // [hidden, Hq * dv]
  // [Hq, dk], [Hq, dk, dk], of the queries before RoPE; together or not at all
  std::optional<DumpTensor> query_mean, query_covariance;

  friend bool SameShape(const CacheLayer& a, const CacheLayer& b);
};

struct BlendLayer {
  uint32_t layer = 0;
  DumpTensor fresh_v;   // [Hk, N, dv]
  DumpTensor reused_v;  // [Hk, M, dv], M <= N: rows 0 .. M-1
  // [Hk, N, dk] and [Hk, M, dk], after RoPE; reused keys stand at their old positions.
  std::optional<DumpTensor> fresh_k, reused_k;
};

// How the model rotates keys: all channels of a head, plain theta.
struct DumpRope {
  double theta = 0;
  client::RopePairing pairing = client::RopePairing::kUnspecified;
};

class Dump {
 public:
  // Errors name the file, the tensor or metadata key, and what was expected.
  static absl::StatusOr<Dump> Open(const std::string& path);

  DumpKind kind() const { return kind_; }
  double scale() const { return scale_; }
  DumpLseBase lse_base() const { return lse_base_; }
  uint32_t model_layers() const { return model_layers_; }
  // Of the keys; rotary_dim 0: all channels of a head turn. Nothing when the dump does not say.
  const std::optional<client::RopeSpec>& rope() const { return rope_; }
  const std::string& model() const { return model_; }  // free text, may be empty
  const SafetensorsFile& file() const { return file_; }
  const std::vector<CacheLayer>& cache_layers() const { return cache_layers_; }
  const std::vector<BlendLayer>& blend_layers() const { return blend_layers_; }
  // From the metadata rope_theta and rope_pairing; naming the one that is missing.
  absl::StatusOr<DumpRope> Rope() const;
  // Of the reused rows 0 .. rows-1: the tensor old_positions.
  absl::StatusOr<std::vector<int32_t>> OldPositions(uint64_t rows) const;

 private:
  explicit Dump(SafetensorsFile file) : file_(std::move(file)) {}
  absl::Status ReadMetadata(std::vector<uint32_t>& layers);
  absl::StatusOr<CacheLayer> ReadCacheLayer(uint32_t layer) const;
  absl::StatusOr<BlendLayer> ReadBlendLayer(uint32_t layer) const;

  SafetensorsFile file_;
  DumpKind kind_ = DumpKind::kCache;
  double scale_ = 0;
  DumpLseBase lse_base_ = DumpLseBase::kE;
  bool has_lse_base_ = false;
  uint32_t model_layers_ = 0;
  std::string model_;
  std::optional<client::RopeSpec> rope_;
  std::vector<CacheLayer> cache_layers_;
  std::vector<BlendLayer> blend_layers_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_DUMP_H_
