// Eviction while the model decodes: the service adds up what each new query saw, and cuts the cache
// back whenever it has grown over its budget. No call per step: every 64 tokens and more is enough.
#ifndef KVTRIAGE_DECODER_DECODE_EVICTOR_H_
#define KVTRIAGE_DECODER_DECODE_EVICTOR_H_

#include <cstdint>
#include <optional>
#include <ostream>

#include "absl/status/status.h"
#include "client/cpp/example/decoder/decoder.h"
#include "kvtriage/session.h"

namespace kvtriage::decoder {

// What one call did. The decoder goes on whatever it says.
struct Observed {
  // kApplied: the new rows count, and if the cache was cut back, the decoder's heads are shorter
  // now. kUnchanged, kUnavailable: the rows come with the next call. kDamaged: all rows were
  // computed again, none evicted, and the running scores begin anew.
  client::Outcome outcome = client::Outcome::kUnavailable;
  absl::Status status;  // why there was no answer
  // Which rows are left, when some were evicted. Absent also when the answer was lost on its way.
  std::optional<client::SequenceResult> evicted;
  bool started = false;  // the service had no running scores: they begin with these rows
};

struct ObserveOptions {
  uint32_t draft_rows = 0;       // newest tokens that may still be rejected: no eviction
  uint32_t trigger = 0;          // evict above so many rows; 0: above the budget
  bool accumulate_only = false;  // a part of a prompt: no eviction
};

class DecodeEvictor {
 public:
  // `policy` has window `all` (h2o, vatp and their like) and an amount in kept_tokens. The decoder
  // has been lent to the session; both and the log outlive it. Everything but a plain success is
  // told to the log.
  DecodeEvictor(client::Session& session, Decoder& decoder, client::Policy policy,
                std::ostream& log)
      : session_(session), decoder_(decoder), policy_(std::move(policy)), log_(log) {}

  // Brings the queries of all tokens that the service has not counted yet; at least one.
  Observed Observe(const ObserveOptions& options = {});

  // The newest `rows` tokens, drafts of the last Observe, were not accepted: the decoder and the
  // running scores forget them.
  void Reject(uint32_t rows);

  // Tokens that the next Observe will bring.
  uint64_t waiting() const { return decoder_.tokens().size() - counted_; }

 private:
  client::ObserveRequest Request(const ObserveOptions& options) const;
  void BeginAnew();

  client::Session& session_;
  Decoder& decoder_;
  client::Policy policy_;
  std::ostream& log_;
  uint64_t counted_ = 0;   // tokens that are in the running scores
  bool in_doubt_ = false;  // the service may count rows that are gone: it has to forget them first
};

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_DECODE_EVICTOR_H_
