// The fate of each sequence of a call, from its answer or from its ledger slot.
#ifndef KVTRIAGE_CLIENT_CPP_FATES_H_
#define KVTRIAGE_CLIENT_CPP_FATES_H_

#include <cstdint>
#include <vector>

#include "client/cpp/ledger_reader.h"
#include "kvtriage/compress.h"

namespace kvtriage::client {

std::vector<SequenceFate> FatesOfAnswer(const CompressResult& result);
// Every sequence with the same outcome.
std::vector<SequenceFate> FatesAll(const std::vector<Sequence>& sequences, Outcome outcome);
// Of an in-place call over `layers` layers of a cache with `block_slots` rows a block. A sequence
// whose units do not add up is damaged.
std::vector<SequenceFate> FatesOfSlot(const SlotReading& reading,
                                      const std::vector<Sequence>& sequences, uint32_t layers,
                                      uint32_t block_slots);
// The outcome of the whole call: the worst of a sequence, but damaged before applied before
// unchanged.
Outcome OutcomeOf(const std::vector<SequenceFate>& fates);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_FATES_H_
