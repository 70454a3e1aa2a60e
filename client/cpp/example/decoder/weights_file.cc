#include "client/cpp/example/decoder/weights_file.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/tensor_files/tensor_values.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::decoder {
namespace {

absl::Status CheckEntry(const TensorEntry* entry, const Slot& slot) {
  if (entry == nullptr) return absl::NotFoundError("missing");
  if (entry->shape != slot.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("its shape is [", absl::StrJoin(entry->shape, ", "),
                     "], the configuration says [", absl::StrJoin(slot.shape, ", "), "]"));
  }
  return CheckReadable(entry->dtype);
}

absl::Status Read(const TensorFile& file, const TensorEntry& entry, const Slot& slot) {
  std::vector<std::byte> bytes(entry.bytes);  // which the file has
  KVTRIAGE_RETURN_IF_ERROR(file.Read(entry, bytes));
  return WidenTo(entry.dtype, bytes, *slot.values);
}

}  // namespace

absl::Status WithPlace(const absl::Status& status, std::string_view place) {
  return absl::Status(status.code(), absl::StrCat(std::string(place), ": ", status.message()));
}

absl::Status FillFrom(const TensorFile& file,
                      const std::function<std::string(const Slot&)>& name_of, Weights* weights) {
  const std::vector<Slot> slots = Slots(weights);
  const auto place = [&](const Slot& slot) {
    return absl::StrCat(file.path(), ": tensor ", name_of(slot));
  };
  for (const Slot& slot : slots) {
    const absl::Status status = CheckEntry(file.Find(name_of(slot)), slot);
    if (!status.ok()) return WithPlace(status, place(slot));
  }
  for (const Slot& slot : slots) {
    const absl::Status status = Read(file, *file.Find(name_of(slot)), slot);
    if (!status.ok()) return WithPlace(status, place(slot));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage::decoder
