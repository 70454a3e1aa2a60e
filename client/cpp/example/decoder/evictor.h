// Has the service shrink a decoder's cache, and acts on what it says became of the rows.
#ifndef KVTRIAGE_DECODER_EVICTOR_H_
#define KVTRIAGE_DECODER_EVICTOR_H_

#include <optional>
#include <ostream>

#include "absl/status/status.h"
#include "client/cpp/example/decoder/decoder.h"
#include "kvtriage/session.h"

namespace kvtriage::decoder {

// What one eviction did. The decoder goes on whatever it says.
struct Eviction {
  // kApplied: the rows named in `result` are left. kUnchanged, kUnavailable: nothing was evicted.
  // kDamaged: rows were lost in the middle of a move; all were computed again, none evicted.
  client::Outcome outcome = client::Outcome::kUnavailable;
  absl::Status status;  // why there is no `result`
  // Absent also when rows were evicted and the answer was lost on its way: how many are left is
  // known then, which is all that decoding needs.
  std::optional<client::CompressResult> result;
};

class Evictor {
 public:
  // Everything but a plain success is told to `log`. The decoder has been lent to the session; both
  // and the log outlive the evictor.
  Evictor(client::Session& session, Decoder& decoder, std::ostream& log)
      : session_(session), decoder_(decoder), log_(log) {}

  // Scores all rows with `policy`, moves those it keeps together in place.
  Eviction Compress(const client::Policy& policy, const client::Measure& measure = {});

 private:
  client::Session& session_;
  Decoder& decoder_;
  std::ostream& log_;
};

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_EVICTOR_H_
