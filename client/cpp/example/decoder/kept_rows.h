// What an engine does with the fate of its one sequence, whichever call it comes from.
#ifndef KVTRIAGE_DECODER_KEPT_ROWS_H_
#define KVTRIAGE_DECODER_KEPT_ROWS_H_

#include <cstdint>
#include <ostream>

#include "client/cpp/example/decoder/decoder.h"
#include "kvtriage/session.h"

namespace kvtriage::decoder {

// kApplied: the decoder's heads have the rows that were kept. `kept` are the sets of the answer;
// null when it was lost on its way, and then the fate has the counts.
void TakeKept(const client::SequenceFate& fate, const client::KeptSets* kept, Decoder& decoder);

// kDamaged: computes all tokens again, none evicted, once nothing of the call that was cut off can
// write any more, however long that takes.
void Rebuild(const client::Session& session, uint64_t quarantine, Decoder& decoder,
             std::ostream& log);

// Waits until nothing of a call that was cut off can write any more (Session::Quiet).
void WaitQuiet(const client::Session& session, uint64_t quarantine);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_KEPT_ROWS_H_
