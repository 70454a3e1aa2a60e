// CacheBlend (arXiv 2405.16444) in an engine: chunks that were prefilled alone are glued together,
// their keys turned to the positions they get, and the few rows that say most of what the chunks
// could not know of each other are computed again, each seeing exactly what stands before it.
#ifndef KVTRIAGE_DECODER_BLENDER_H_
#define KVTRIAGE_DECODER_BLENDER_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/example/decoder/decoder.h"
#include "kvtriage/session.h"

namespace kvtriage::decoder {

struct BlendOptions {
  double ratio = 0.15;       // of the reused rows, how many are computed again
  uint32_t check_layer = 1;  // layers before it are computed for all rows; below config().layers
};

struct Blended {
  std::vector<float> logits;  // behind the last token
  // The rows that were computed again from the check layer on. Absent when the service failed and
  // everything was prefilled in full instead.
  std::optional<client::RecomputeResult> chosen;
  absl::Status status;  // why there is none
};

class Blender {
 public:
  // Lends the rows it will fuse. The decoder has been lent to the session and has no tokens yet;
  // both and the log outlive the blender.
  static absl::StatusOr<Blender> Create(client::Session& session, Decoder& decoder,
                                        std::ostream& log);

  // The decoder's tokens become those of `chunks`, one behind the other, and then `suffix`, which
  // is computed fresh. Each chunk is a decoder of the same weights whose Run began at position 0
  // and of which nothing was evicted. An error (RESOURCE_EXHAUSTED, INVALID_ARGUMENT) says that the
  // arguments do not fit; whatever the service does, logits come back.
  absl::StatusOr<Blended> Blend(std::span<const Decoder* const> chunks,
                                std::span<const int32_t> suffix, const BlendOptions& options);

 private:
  // What a blend knows of its rows while it runs.
  struct Rows {
    std::vector<int32_t> tokens;
    std::vector<int32_t> old_positions;  // of the reused ones, which come first
    uint32_t reused = 0;
    uint32_t count() const { return static_cast<uint32_t>(tokens.size()); }
  };

  Blender(client::Session& session, Decoder& decoder, std::ostream& log, client::HostMemory fresh)
      : session_(session), decoder_(decoder), log_(log), fresh_(std::move(fresh)) {}

  absl::Status CheckArguments(std::span<const Decoder* const> chunks,
                              std::span<const int32_t> suffix, const BlendOptions& options) const;
  Rows Glue(std::span<const Decoder* const> chunks, std::span<const int32_t> suffix);
  absl::Status Rerotate(const Rows& rows);
  absl::StatusOr<Blended> Recompute(const Rows& rows, const BlendOptions& options);
  absl::StatusOr<client::RecomputeResult> Select(const Rows& rows, const BlendOptions& options);
  absl::Status Fuse(uint32_t layer, const Rows& rows, const std::vector<int32_t>* which);
  void WriteFresh(const Transformer::Projected& projected);
  client::TensorSpec Fresh(bool values, uint32_t rows) const;
  client::Sequence SequenceOf(uint32_t rows) const;
  absl::Status Settle(const char* what, const client::RowsOutcome& outcome);

  client::Session& session_;
  Decoder& decoder_;
  std::ostream& log_;
  client::HostMemory fresh_;  // K, then V: [capacity][kv_heads][head_size] each
  client::Region fresh_region_;
};

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_BLENDER_H_
