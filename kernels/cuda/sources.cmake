# What the CUDA backend is made of: for nvcc (CMakeLists.txt) and for the emulator
# (../emulation/CMakeLists.txt). Names are relative to this folder.
set(kvtriage_cuda_hosts
  compact.cc
  cuda_status.cc
  device_inputs.cc
  divergence.cc
  fuse.cc
  move_plan.cc
  quality.cc
  query_rows.cc
  rotate.cc
  select.cc
  workspace.cc
)
set(kvtriage_cuda_kernels
  compact.cu
  divergence.cu
  quality.cu
  query_rows.cu
  rotate.cu
  select.cu
)
