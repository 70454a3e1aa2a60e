// A golden case as requests to the product, for one input type, cache layout and source of
// attention.
#ifndef KVTRIAGE_TESTS_GOLDEN_CASE_REQUEST_H_
#define KVTRIAGE_TESTS_GOLDEN_CASE_REQUEST_H_

#include <memory>
#include <string>
#include <vector>

#include "service/engine/triage.h"
#include "tests/golden/case_inputs.h"
#include "tests/support/placed_cache.h"

namespace kvtriage {

// One layer's inputs and their attention, made once per case.
struct CaseLayer {
  CaseInputs inputs;
  CaseStorage storage;
  CaseLogits logits;
  CaseAttention attention;
};

// Owns everything that `sequence` points to.
class CaseRequest {
 public:
  // `source`: "query", "given" (Q, O and LSE; "given2" has the LSE to base 2), "ready" (A, Z and
  // O), "sums" (of the newest `window` rows), "none". Odd layouts store the rows of inputs
  // outermost.
  CaseRequest(const std::vector<CaseLayer>& layers, double scale, const std::string& source,
              DType type, size_t layout, uint32_t window, uint32_t first_layer);
  // Queries before RoPE of every row, or (`moments`) their mean and covariance behind the sinks;
  // without `spread` the covariance is 0. Speeds of theta 10,000 on all channels, halves paired.
  void ExpectQueries(const std::vector<CaseLayer>& layers, double scale, bool moments, bool spread,
                     uint32_t sinks, DType type, size_t layout);
  TriageSequence& sequence() { return sequence_; }
  const TriageSequence& sequence() const { return sequence_; }

 private:
  AttentionInput Input(const CaseLayer& layer, double scale, const std::string& source, DType type,
                       bool odd, uint32_t window);
  TensorView Keep(DenseTensor tensor);

  std::vector<std::unique_ptr<PlacedCache>> caches_;
  std::vector<DenseTensor> tensors_;
  Rope rope_;
  TriageSequence sequence_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_GOLDEN_CASE_REQUEST_H_
