// The reference decoder's model in float64 with plain loops, one token at a time over a cache that
// never moves: what has been evicted is masked. A second answer to every question a test asks it.
#ifndef KVTRIAGE_TESTS_SUPPORT_PLAIN_DECODER_H_
#define KVTRIAGE_TESTS_SUPPORT_PLAIN_DECODER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "client/cpp/example/decoder/weights.h"

namespace kvtriage {

using Doubles = std::vector<double>;

class PlainDecoder {
 public:
  explicit PlainDecoder(const decoder::Weights& weights);  // which outlive it

  // Logits behind the next token, whose position is the number of tokens before it.
  Doubles Step(int32_t token);
  Doubles Run(std::span<const int32_t> tokens);  // of the last

  // From now on a head sees only these of the rows it sees now, counted as they stand in Visible.
  void Keep(uint32_t layer, uint32_t kv_head, std::span<const int32_t> rows);
  // Token numbers of the rows that a head sees, ascending.
  const std::vector<int32_t>& Visible(uint32_t layer, uint32_t kv_head) const;

  // What the last Step saw and made: keys of all tokens ever ([token][head_size], rotated), and for
  // each query head the attention weights over the rows visible then.
  const Doubles& Keys(uint32_t layer, uint32_t kv_head) const;
  const Doubles& Values(uint32_t layer, uint32_t kv_head) const;
  const Doubles& Attention(uint32_t layer, uint32_t query_head) const;

 private:
  struct Head {
    Doubles keys, values;
    std::vector<int32_t> visible;
  };
  Head& At(uint32_t layer, uint32_t kv_head);
  const Head& At(uint32_t layer, uint32_t kv_head) const;
  Doubles Attend(uint32_t layer, const Doubles& queries);

  const decoder::Weights& weights_;
  std::vector<Head> heads_;
  std::vector<Doubles> attention_;
  int32_t tokens_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_PLAIN_DECODER_H_
