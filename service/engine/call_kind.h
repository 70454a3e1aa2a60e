// Which RPC a key, a job or an answer belongs to.
#ifndef KVTRIAGE_SERVICE_ENGINE_CALL_KIND_H_
#define KVTRIAGE_SERVICE_ENGINE_CALL_KIND_H_

#include <cstdint>

namespace kvtriage {

enum class CallKind : uint8_t { kCompress, kSelectRecompute, kRegister };

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_CALL_KIND_H_
