// The host's part of gathering query rows: a request's inputs as the device kernels want them.
#ifndef KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_H_
#define KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/query_rows_launch.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/attention.h"

namespace kvtriage {

// Which rows of an input are wanted, and what they are for.
struct QueryPick {
  uint32_t window_rows = 0;  // the newest so many
  bool averaged = false;
  bool reads_values = false;  // a bad V hides its token
  bool widened = true;        // q_rows are wanted
};

// Everything of a QueryItem but its units and results. Rows are numbered as in query_rows_launch.h;
// tensors of `input` lie on the device, lists are the host's.
absl::StatusOr<QueryItem> MakeQueryItem(const LayerRows& layer, const AttentionInput& input,
                                        const QueryPick& pick, Workspace& workspace,
                                        DeviceInputs& inputs);

// Units of a whole KV head.
uint32_t AllUnits(const QueryItem& item);

// Bytes of the results of so many units (counts apart), with their outputs or without.
uint64_t QueryBytes(const QueryItem& item, uint32_t units, bool outputs);

// Makes room for the results of units [begin, begin + count).
absl::Status TakeQueryRoom(uint32_t begin, uint32_t count, bool outputs, Workspace& workspace,
                           QueryItem& item);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_H_
