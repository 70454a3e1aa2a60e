// The answer of a whole stream, put together from those of its layers.
#ifndef KVTRIAGE_SERVICE_ENGINE_LAYER_WHOLE_H_
#define KVTRIAGE_SERVICE_ENGINE_LAYER_WHOLE_H_

#include "service/engine/layer_stream.h"

namespace kvtriage {

// What Compress over all layers would have answered; its times are sums. Every layer is done.
// kv_revision is that of the layers.
Answer WholeAnswer(const CompressSpec& spec, const LayerProgress& progress);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_LAYER_WHOLE_H_
