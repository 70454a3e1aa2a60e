// A kvtriaged of this command's own: started in a private temporary directory, ended with the
// command.
#ifndef KVTRIAGE_CLIENT_CLI_PRIVATE_SERVICE_H_
#define KVTRIAGE_CLIENT_CLI_PRIVATE_SERVICE_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace kvtriage::cli {

// The kvtriaged beside this executable, else the one in PATH; NOT_FOUND without one.
absl::StatusOr<std::string> FindServiceProgram();

class PrivateService {
 public:
  // Returns when it listens (at most 10 s). NOT_FOUND without a kvtriaged; UNAVAILABLE with its
  // last words when it ends at once.
  static absl::StatusOr<std::unique_ptr<PrivateService>> Start();
  // Ends the process (it also ends by itself when we die) and removes the directory.
  ~PrivateService();
  PrivateService(const PrivateService&) = delete;
  PrivateService& operator=(const PrivateService&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  const std::string& program() const { return program_; }

 private:
  PrivateService() = default;
  absl::Status Spawn();
  absl::Status WaitListening();
  bool Ended(int wait_flags);

  std::string program_, directory_, endpoint_;
  pid_t pid_ = -1;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_PRIVATE_SERVICE_H_
