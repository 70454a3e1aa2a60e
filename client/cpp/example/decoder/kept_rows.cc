#include "client/cpp/example/decoder/kept_rows.h"

#include <chrono>
#include <thread>

namespace kvtriage::decoder {
namespace {

// Without an answer: one count per (layer, head), per layer, or for all.
uint32_t CountOf(const client::SequenceFate& fate, const ModelConfig& config, uint32_t layer,
                 uint32_t head) {
  const size_t lists = fate.kept_rows.size();
  if (lists == uint64_t{config.layers} * config.kv_heads) {
    return fate.kept_rows[layer * config.kv_heads + head];
  }
  return lists == config.layers ? fate.kept_rows[layer] : static_cast<uint32_t>(fate.kept);
}

}  // namespace

void TakeKept(const client::SequenceFate& fate, const client::KeptSets* kept, Decoder& decoder) {
  const ModelConfig& config = decoder.transformer().config();
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    for (uint32_t head = 0; head < config.kv_heads; ++head) {
      const uint32_t rows = kept != nullptr ? static_cast<uint32_t>(kept->At(layer, head).size())
                                            : CountOf(fate, config, layer, head);
      decoder.kv().Shrink(layer, head, rows);
    }
  }
  decoder.set_kv_revision(fate.kv_revision);
  if (decoder.kv().longest() < decoder.tokens().size()) decoder.ForgetQueries();
}

void Rebuild(const client::Session& session, uint64_t quarantine, Decoder& decoder,
             std::ostream& log) {
  log << "the cache is damaged: computing all " << decoder.tokens().size()
      << " tokens again, none evicted\n";
  WaitQuiet(session, quarantine);
  decoder.Recompute();
}

void WaitQuiet(const client::Session& session, uint64_t quarantine) {
  while (quarantine != 0 && !session.Quiet(quarantine)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace kvtriage::decoder
