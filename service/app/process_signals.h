// Signals of the process, and the last resort when it does not end.
#ifndef KVTRIAGE_SERVICE_APP_PROCESS_SIGNALS_H_
#define KVTRIAGE_SERVICE_APP_PROCESS_SIGNALS_H_

#include <cstdint>

namespace kvtriage {

// Before any thread starts: SIGTERM and SIGINT are left to WaitForStop, SIGPIPE is ignored, SIGBUS
// (lent memory that went away) writes one line and ends the process with exit code 1.
void SetUpSignals();

// Waits for SIGTERM or SIGINT; false when none came within `timeout_ms`. Main thread.
bool WaitForStop(uint64_t timeout_ms);
void WaitForStop();

// From now on SIGTERM comes when the process that started us ends. False when it has ended already.
bool StopWithParent();

// Writes one log line and ends the process with exit code 1 after `ms`, whatever else hangs: an RPC
// that is never finished blocks gRPC's shutdown for ever.
void ExitAfter(uint64_t ms);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_PROCESS_SIGNALS_H_
