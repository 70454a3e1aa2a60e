// A Compress whose layers the worker hands over one by one: the service scores, selects and moves a
// layer while the worker computes the next one.
//
//   auto stream = session->OpenLayers(request);            // the layers that will come, the policy
//   for (int32_t layer : layers) { Compute(layer); (*stream)->Ready(layer); }
//   CompressOutcome outcome = (*stream)->Close();          // the whole, as Compress would give it
//
// From OpenLayers until Close (or Cancel) returns, the engine neither runs nor frees the sequences;
// it may write the rows of layers that are not Ready, and their inputs.
#ifndef KVTRIAGE_CLIENT_LAYER_STREAM_H_
#define KVTRIAGE_CLIENT_LAYER_STREAM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtriage/compress.h"

namespace kvtriage::client {

class LayersCall;

struct LayerResult {
  uint32_t layer = 0;  // index into CacheSpec::layers
  // Of this layer alone, without policy and quality. kv_revision is the same in all layers; lengths
  // and tables hold for the sequence only once all layers are done.
  CompressResult result;
};

// Made by Session::OpenLayers; the session outlives it. One thread may call Ready while another
// calls Next; Close and Cancel come alone and last.
class LayerStream {
 public:
  // Cancels what has not been closed, and waits as Cancel does.
  ~LayerStream();
  LayerStream(const LayerStream&) = delete;
  LayerStream& operator=(const LayerStream&) = delete;

  // The policy that runs, expanded.
  const PolicyParts& policy() const;

  // Hands over a layer (index into CacheSpec::layers) whose rows and inputs are complete: each of
  // the request's layers once, in any order. Does not wait for its result. UNAVAILABLE
  // (stream_over): the stream has ended already, Close says why.
  absl::Status Ready(uint32_t layer);

  // Waits for the next finished layer: they come in the order of Ready. An error: the stream has
  // ended, Close says what is true of the cache. Optional: Close returns all layers together.
  absl::StatusOr<LayerResult> Next();

  // No more layers come. Waits for those that were handed over and says what became of the cache;
  // never ends in doubt. Without all announced layers the service refuses it (field_missing), and
  // sequences of which some layers were moved are damaged.
  CompressOutcome Close();

  // Gives up: layers that have not begun are dropped. Says what became of the cache.
  CompressOutcome Cancel();

 private:
  friend class Session;
  explicit LayerStream(std::unique_ptr<LayersCall> call);
  std::unique_ptr<LayersCall> call_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_LAYER_STREAM_H_
