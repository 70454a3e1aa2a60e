// cp.async: copies land as late as the program allows, and their destination reads as NaN until
// then.
#ifndef KVTRIAGE_KERNELS_EMULATION_ASYNC_COPY_H_
#define KVTRIAGE_KERNELS_EMULATION_ASYNC_COPY_H_

namespace kvtriage::emulation {

struct Thread;

// What a thread left in flight lands when it ends; uncommitted copies are a mistake.
void LandAtExit(Thread& thread);

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_ASYNC_COPY_H_
