// Lent memory as this process sees it.
#ifndef KVTRIAGE_SERVICE_MEMORY_MAPPING_H_
#define KVTRIAGE_SERVICE_MEMORY_MAPPING_H_

#include <cstddef>
#include <cstdint>

namespace kvtriage {

// Which memory something lies in: the host's, or that of the n-th CUDA device that we serve,
// from 1.
using DeviceIndex = uint32_t;
inline constexpr DeviceIndex kHostMemory = 0;

// Made and destroyed on the thread of the mapper that it belongs to (mapper.h).
class Mapping {
 public:
  virtual ~Mapping() = default;
  // Of the first lent byte. Of a device's memory only kernels and copies may use it.
  virtual std::byte* data() const = 0;
  virtual uint64_t bytes() const = 0;
  // Its region has left the registry and waits for its last pin. Any thread.
  virtual void NoteRetiring() {}
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_MAPPING_H_
