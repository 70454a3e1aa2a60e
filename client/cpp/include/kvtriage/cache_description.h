// How lent memory is described: byte strides, never layout names. These structs mirror the messages
// of proto/kvtriage/v1/types.proto; what they mean is said there and in proto/README.md.
#ifndef KVTRIAGE_CLIENT_CACHE_DESCRIPTION_H_
#define KVTRIAGE_CLIENT_CACHE_DESCRIPTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kvtriage::client {

// Names memory that was registered through this session. Stays the same when the session attaches
// anew behind the caller's back; the server's own id does not. Copyable, owns nothing.
struct Region {
  uint64_t handle = 0;  // 0: none

  // Inside Registration::caches: region `index` (from 0) of that same call.
  static constexpr Region OfThisCall(uint32_t index) { return Region{uint64_t{index} + 1}; }
  friend bool operator==(Region, Region) = default;
};

struct Cache {
  uint64_t handle = 0;  // 0: none
  friend bool operator==(Cache, Cache) = default;
};

enum class DType { kUnspecified = 0, kF32 = 1, kF16 = 2, kBF16 = 3, kF8E4M3 = 4, kF8E5M2 = 5 };

// Bytes of one element; 0 for kUnspecified.
uint32_t BytesOf(DType dtype);

// float32 scales of fp8 rows, one per (block, head, slot) of their view. They move with the rows.
struct RowScales {
  Region region;
  uint64_t offset = 0;
  uint64_t block_stride = 0, head_stride = 0, slot_stride = 0;  // bytes, multiples of 4
};

// K or V of one layer:
//   addr = region + offset + block*block_stride + head*head_stride + slot*slot_stride +
//   elem*elem_stride
// Strides are bytes and may be 0 only where the extent is 1.
struct ViewSpec {
  Region region;
  uint64_t offset = 0;
  uint64_t block_stride = 0;
  uint64_t head_stride = 0;
  uint64_t slot_stride = 0;
  uint64_t elem_stride = 0;  // the element size for contiguous rows; 0 when opaque
  uint32_t num_blocks = 1;
  uint32_t block_slots = 0;  // rows per block; the capacity for a contiguous sequence
  uint32_t heads = 0;
  uint32_t row_elems = 0;  // head size; 0 when opaque
  DType dtype = DType::kUnspecified;
  uint32_t opaque_row_bytes = 0;  // set instead of dtype: rows that are moved, never scored
  // fp8 rows: what a stored number is multiplied with; one for all rows, or one per row.
  float scale = 1.0f;
  std::optional<RowScales> row_scales;
};

// A contiguous sequence [heads][capacity][elems] at `offset`: one block.
ViewSpec ContiguousView(Region region, uint64_t offset, uint32_t heads, uint32_t capacity,
                        uint32_t elems, DType dtype);

// A dense input of at most four axes. An axis that does not apply has extent 1.
struct TensorSpec {
  Region region;
  uint64_t offset = 0;
  DType dtype = DType::kUnspecified;
  uint32_t layers = 1, rows = 1, heads = 1, elems = 1;
  uint64_t layer_stride = 0, row_stride = 0, head_stride = 0, elem_stride = 0;  // bytes
};

// The strides of a tensor that is stored without gaps in the order [layers][rows][heads][elems].
TensorSpec DenseTensor(Region region, uint64_t offset, DType dtype, uint32_t layers, uint32_t rows,
                       uint32_t heads, uint32_t elems);

enum class RopePairing {
  kUnspecified = 0,
  kHalf = 1,        // channel j pairs with j + rotary_dim/2
  kInterleaved = 2  // channel 2j pairs with 2j + 1
};

// Speeds f_j = theta^(-2j/rotary_dim), scaled as the model's configuration says. Kinds whose speeds
// depend on the length of the text (dynamic NTK, LongRoPE) cannot be re-rotated.
struct LinearScaling {
  double factor = 0;
};
struct Llama3Scaling {
  double factor = 8, low = 1, high = 4;
  uint32_t original_length = 8192;
};
struct YarnScaling {
  double factor = 0;
  double beta_fast = 32, beta_slow = 1;
  uint32_t original_length = 0;
};
// A kind that cannot be re-rotated: said and refused (rope_unsupported), never dropped.
struct OtherScaling {
  enum class Kind { kDynamicNtk = 1, kLongRope = 2, kUnknown = 3 };
  Kind kind = Kind::kUnknown;
};
struct ThetaSpeeds {
  double theta = 0;
  std::variant<std::monostate, LinearScaling, Llama3Scaling, YarnScaling, OtherScaling> scaling;
};

// Rotary position embedding of keys.
struct RopeSpec {
  RopePairing pairing = RopePairing::kUnspecified;
  uint32_t rotary_dim = 0;                                // even; 0: nothing turns
  uint32_t rotary_offset = 0;                             // first rotated channel of the row
  std::variant<ThetaSpeeds, std::vector<double>> speeds;  // or rotary_dim/2 of them
  double attention_factor = 0;           // YaRN: multiplies queries from before RoPE only; 0 = 1
  std::vector<uint32_t> mrope_sections;  // three that add up to rotary_dim/2, or none
};
enum class LayerKind { kFull = 1, kMla = 2, kSliding = 3, kAlibi = 4 };

struct LayerSpec {
  LayerKind kind = LayerKind::kFull;
  uint32_t layer_index = 0;  // of the whole model
  uint32_t q_heads = 0;      // a multiple of kv_heads
  uint32_t kv_heads = 0;
  ViewSpec k, v;
  // kMla: V is elements [first, first + elems) of K's rows and moves with them; `v` stays empty. Of
  // opaque rows nothing is set but this.
  struct Slice {
    uint32_t first = 0, elems = 0;
  };
  std::optional<Slice> v_in_k;
  std::vector<ViewSpec> companions;  // opaque side tables that move with the rows, at most 4
  uint32_t rope_index = 0;           // 1-based index into CacheSpec::ropes; 0: no rotary part
  // kAlibi: the engine's bias uses stored positions, not the row index. Else its rows are selected,
  // never moved.
  bool position_aware = false;
  // kSliding: rows that a query sees, its own included. Such layers are selected, never moved.
  uint32_t sliding_window = 0;
};

// One group of layers that share a block table.
struct CacheSpec {
  std::vector<LayerSpec> layers;
  std::vector<RopeSpec> ropes;  // at most 8; needed by whatever rotates
  uint32_t num_layers = 0;      // full-attention layers of the whole model
};

enum class Access { kRead = 1, kReadWrite = 2 };

// An allocation of a CUDA device, as the process that made it exports it. LendDeviceMemory
// (device_memory.h) fills it in.
struct CudaAllocation {
  std::array<std::byte, 64> handle{};  // opens the whole allocation
  std::string device_uuid;
  uint64_t bytes = 0;
  uint64_t generation = 0;  // no other allocation of this process has or had it
};

// Memory to lend: bytes of a sealed memfd, or of a CUDA allocation.
struct RegionSpec {
  int fd = -1;  // borrowed for the call; the session keeps a duplicate until Unregister
  std::optional<CudaAllocation> cuda;  // instead of `fd`
  uint64_t offset = 0;  // into the file, a multiple of the page size; into the allocation, any
  uint64_t size = 0;
  Access access = Access::kReadWrite;
  uint32_t tag = 0;     // the caller's own number
  struct Fingerprint {  // bytes just read at this place: catches a wrong offset
    uint64_t offset = 0;
    std::vector<uint8_t> expected;  // 1..64
  };
  std::optional<Fingerprint> fingerprint;  // checked at the first registration only
  // Whatever must live as long as the memory is lent. The session lets go of it when the service
  // has closed its mappings (Unregister answered OK), on the thread that learns of it; if it cannot
  // learn of it by its own end, never.
  std::shared_ptr<const void> owner;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CACHE_DESCRIPTION_H_
