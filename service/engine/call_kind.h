// Which RPC a key, a job or an answer belongs to.
#ifndef KVTRIAGE_SERVICE_ENGINE_CALL_KIND_H_
#define KVTRIAGE_SERVICE_ENGINE_CALL_KIND_H_

#include <cstdint>

namespace kvtriage {

// A layer of a CompressLayers stream is a kCompress: its key is resolved with Compress. The stream
// itself has no key.
enum class CallKind : uint8_t {
  kCompress,
  kCompressLayers,
  kObserve,
  kRewind,
  kSelectRecompute,
  kRerotate,
  kFuse,
  kRegister
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_CALL_KIND_H_
