// Device time of the kernels alone, without the plans that the host makes and copies before them.
#ifndef KVTRIAGE_TESTS_GPU_LAUNCH_CLOCK_H_
#define KVTRIAGE_TESTS_GPU_LAUNCH_CLOCK_H_

namespace kvtriage::gpu {

// Whether launches can be timed one by one: on a real device, where the linker lets every launch
// pass by here (--wrap); not on the stand-in.
bool TimesLaunches();

// Seconds of all kernels since the last call, which have ended.
double TakeLaunchSeconds();

}  // namespace kvtriage::gpu

#endif  // KVTRIAGE_TESTS_GPU_LAUNCH_CLOCK_H_
