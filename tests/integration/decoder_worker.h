// A reference decoder of a test's own, lent to a service; and the float64 model that masks what it
// evicts.
#ifndef KVTRIAGE_TESTS_INTEGRATION_DECODER_WORKER_H_
#define KVTRIAGE_TESTS_INTEGRATION_DECODER_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <vector>

#include "client/cpp/example/decoder/decoder.h"
#include "tests/support/plain_decoder.h"
#include "tests/support/service_process.h"

namespace kvtriage::decoder {

class DecoderWorker {
 public:
  DecoderWorker(const Weights& weights, uint32_t capacity, InputsWanted wanted = {});

  // Fails the test on an error.
  void LendTo(const ServiceProcess& service);
  // Runs tokens, the logits behind the last are what `next` picks from.
  void Run(std::span<const int32_t> tokens);
  int32_t next() const { return Greedy(logits_); }
  std::vector<int32_t> Generate(uint32_t steps);

  // Generates `steps` tokens together with a masked model: the same logits but for rounding, and
  // the same tokens. Ends early once the test has failed.
  void ExpectSameSteps(PlainDecoder& masked, uint32_t steps);
  // Masks what the sets of an eviction leave out. The decoder's heads have as many rows.
  void Mask(PlainDecoder& masked, const client::KeptSets& kept) const;

  Decoder& decoder() { return *decoder_; }
  client::Session& session() { return *session_; }
  std::ostringstream& log() { return log_; }

 private:
  std::optional<Decoder> decoder_;
  std::unique_ptr<client::Session> session_;
  std::vector<float> logits_;
  std::ostringstream log_;
};

// `kept` (rows as they stood before) holds the newest `recent` of `scores`, and of the others none
// that is worse than one left out, but for float32 rounding.
void ExpectBest(std::span<const int32_t> kept, const Doubles& scores, uint32_t recent);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_TESTS_INTEGRATION_DECODER_WORKER_H_
