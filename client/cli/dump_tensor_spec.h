// Tensors of a dump as the client library and the kernels describe them.
#ifndef KVTRIAGE_CLIENT_CLI_DUMP_TENSOR_SPEC_H_
#define KVTRIAGE_CLIENT_CLI_DUMP_TENSOR_SPEC_H_

#include <cstddef>

#include "client/cli/dump.h"
#include "kvtriage/cache_description.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage::cli {

client::DType ClientType(DType dtype);

// `layers` tensors [heads, rows, elems], one behind the other at `offset`, as (layer, row, head,
// elem).
client::TensorSpec InputSpec(client::Region region, uint64_t offset, const DumpTensor& tensor,
                             size_t layers);

// One tensor [heads, rows, elems] at `base` as kernels see query rows, and as they see K or V (one
// block).
TensorView QueryView(const std::byte* base, const DumpTensor& tensor);
KvView CacheView(std::byte* base, const DumpTensor& tensor);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_DUMP_TENSOR_SPEC_H_
