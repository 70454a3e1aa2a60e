// Lends a lot of memory over one link.
#ifndef KVTRIAGE_CLIENT_CPP_REGISTER_MEMORY_H_
#define KVTRIAGE_CLIENT_CPP_REGISTER_MEMORY_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/link.h"
#include "client/cpp/memory_book.h"

namespace kvtriage::client {

inline constexpr size_t kMaxRegionsPerCall = 32;  // tickets that may wait at the service

// One call, all or nothing; the ids go into `link`. Fingerprints are sent with `first` only: the
// bytes change once the memory is in use.
absl::Status RegisterLot(Link& link, const Lot& lot, bool first, bool retry, absl::Time deadline);

// Everything in the book, in as few calls as fit.
absl::Status RegisterAll(Link& link, const Lot& all, absl::Time deadline);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_REGISTER_MEMORY_H_
