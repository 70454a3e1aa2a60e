// One CompressLayers, from its first message until it is settled: what LayerStream is made of.
#ifndef KVTRIAGE_CLIENT_CPP_LAYERS_CALL_H_
#define KVTRIAGE_CLIENT_CPP_LAYERS_CALL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/idempotency_key.h"
#include "client/cpp/link.h"
#include "kernels/core/mutex.h"
#include "kvtriage/layer_stream.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

class LayersCall {
 public:
  // `cache` describes request.cache; `quarantine` makes a ticket for blocks that may still be
  // written.
  LayersCall(std::shared_ptr<Link> link, const CacheSpec& cache, const CompressRequest& request,
             const CallOptions& options, absl::Duration settle,
             std::function<uint64_t()> quarantine);

  // Once, first: sends the first message and waits for the answer. An error leaves nothing behind.
  absl::Status Open();

  // As LayerStream says.
  const PolicyParts& policy() const { return policy_; }
  absl::Status Ready(uint32_t layer);
  absl::StatusOr<LayerResult> Next();
  CompressOutcome Close();
  CompressOutcome Cancel();

  bool settled() const { return settled_; }

 private:
  bool InPlaceCall() const;
  absl::Status TryOpen(const v1::CompressLayersRequest& open);
  void ReadEnd();
  absl::StatusOr<LayerResult> ResultOf(v1::CompressLayersResponse::LayerDone done) const;
  CompressOutcome Finish();
  CompressOutcome Answered();
  CompressOutcome AfterError(const absl::Status& status);
  CompressOutcome WaitForSlot(const absl::Status& status, absl::Time limit);
  CompressOutcome WaitForCopies(const absl::Status& status, absl::Time limit);
  absl::Status Resolve(const IdempotencyKey& key, absl::Time deadline);
  bool Quiet() const;
  CompressOutcome ReadSlot(const absl::Status& status, Writer writer);
  CompressOutcome OfSlot(const absl::Status& status, const SlotReading& reading);
  CompressOutcome Unsettled(const absl::Status& status);

  const std::shared_ptr<Link> link_;
  const CompressRequest request_;
  const bool retry_;
  const absl::Time deadline_;
  const absl::Duration settle_;
  const std::function<uint64_t()> quarantine_;
  const CacheSpec cache_;
  const std::vector<uint32_t> heads_;
  std::optional<LedgerSlots::Lease> lease_;  // of an in-place call
  std::unique_ptr<LayersWire> wire_;
  uint64_t job_id_ = 0;
  PolicyParts policy_;

  // Of whoever reads.
  v1::CompressResponse whole_;
  bool finished_ = false, settled_ = false;
  absl::Status end_;

  Mutex mutex_;
  std::map<uint32_t, IdempotencyKey> unanswered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_LAYERS_CALL_H_
