// The fate of each sequence of a call, from its answer or from its ledger slot.
#ifndef KVTRIAGE_CLIENT_CPP_FATES_H_
#define KVTRIAGE_CLIENT_CPP_FATES_H_

#include <cstdint>
#include <vector>

#include "client/cpp/ledger_reader.h"
#include "kvtriage/compress.h"
#include "kvtriage/observe.h"

namespace kvtriage::client {

std::vector<SequenceFate> FatesOfAnswer(const CompressResult& result);
// Every sequence with the same outcome.
std::vector<SequenceFate> FatesAll(const std::vector<Sequence>& sequences, Outcome outcome);
// Of an in-place call over `layers` layers of a cache with `block_slots` rows a block. A sequence
// whose units do not add up is damaged.
std::vector<SequenceFate> FatesOfSlot(const SlotReading& reading,
                                      const std::vector<Sequence>& sequences, uint32_t layers,
                                      uint32_t block_slots);
// Of an Observe, whose units are of the sequences that were cut back: to the others, and to those
// that could not be, the call never happened.
std::vector<SequenceFate> FatesOfSlot(const SlotReading& reading,
                                      const std::vector<ObserveStep>& steps, uint32_t layers,
                                      uint32_t block_slots);
// Every step that may evict with `outcome`, the others unchanged.
std::vector<SequenceFate> FatesAll(const std::vector<ObserveStep>& steps, Outcome outcome);
std::vector<SequenceFate> FatesOfAnswer(const ObserveResult& result,
                                        const std::vector<ObserveStep>& steps);
// The outcome of the whole call: the worst of a sequence, but damaged before applied before
// unchanged.
Outcome OutcomeOf(const std::vector<SequenceFate>& fates);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_FATES_H_
