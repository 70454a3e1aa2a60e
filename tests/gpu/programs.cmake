# The programs of this folder and what each is made of. Built for the real runtime (CMakeLists.txt) and
# for the emulator (emulated/CMakeLists.txt).
set(kvtriage_gpu_programs facts ipc_probe kernel_timing wrappers)
# Tests beside them: of ../unit/kernels, run on every device; and of this folder.
set(kvtriage_gpu_unit_tests divergence fuse quality rotate score select)
set(kvtriage_gpu_own_tests moves repeats)
set(facts_sources facts.cc ceilings.cc device.cc mma_chain.cu)
set(ipc_probe_sources ipc_probe.cc device.cc exporter_process.cc)
set(kernel_timing_sources kernel_timing.cc ceilings.cc device.cc mma_chain.cu timed_calls.cc)
set(wrappers_sources wrappers.cc device.cc wrapper_dump.cu wrapper_rules.cc)
