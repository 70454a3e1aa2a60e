#include "client/tensor_files/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kvtriage {

TensorFile::TensorFile(TensorFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      file_bytes_(other.file_bytes_),
      tensors_(std::move(other.tensors_)) {}

TensorFile& TensorFile::operator=(TensorFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(file_bytes_, other.file_bytes_);
  std::swap(tensors_, other.tensors_);
  return *this;
}

TensorFile::~TensorFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status TensorFile::OpenRegular(const std::string& path) {
  path_ = path;
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  file_bytes_ = static_cast<uint64_t>(info.st_size);
  return absl::OkStatus();
}

const TensorEntry* TensorFile::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

bool TensorFile::Add(const std::string& name, TensorEntry entry) {
  return tensors_.emplace(name, std::move(entry)).second;
}

absl::Status TensorFile::Read(const TensorEntry& entry, std::span<std::byte> out) const {
  return ReadAt(entry.offset, out);
}

absl::Status TensorFile::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::DataLossError(absl::StrCat(path_, ": ", std::strerror(errno)));
    if (got == 0)
      return absl::DataLossError(absl::StrCat(path_, ": the file ended while it was read"));
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
