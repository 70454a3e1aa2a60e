// What the process says when it ends.
#ifndef KVTRIAGE_SERVICE_APP_EXIT_CODES_H_
#define KVTRIAGE_SERVICE_APP_EXIT_CODES_H_

namespace kvtriage {

inline constexpr int kExitDrained = 0;
inline constexpr int kExitFailed = 1;       // could not start or stop
inline constexpr int kExitBadConfig = 2;    // configuration or flags
inline constexpr int kExitDeviceLost = 70;  // a CUDA device failed for good
inline constexpr int kExitStuck = 71;       // a job or an unmapping does not end

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_EXIT_CODES_H_
