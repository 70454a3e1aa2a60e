# The package for a machine with a GPU: the programs of this folder, the kernels' tests, data, check.sh.
# The tests are those of ../unit that run on every device and those of this folder, for the real runtime;
# what requests name on the host is copied to the device (tests/support/device_mirror.h).
kvtriage_library(kvtriage_each_device_real
  SOURCES ../support/each_device.cc ../support/device_mirror.cc ../support/mirrored_backend.cc
  DEPS kvtriage_kernels kvtriage_cuda kvtriage_emulation GTest::gtest)
set(programs)
foreach(name ${kvtriage_gpu_programs})
  target_sources(gpu_${name} PRIVATE old_libc.cc)
  list(APPEND programs gpu_${name})
endforeach()
foreach(name ${kvtriage_gpu_unit_tests} ${kvtriage_gpu_own_tests})
  if(name IN_LIST kvtriage_gpu_unit_tests)
    get_target_property(sources ${name}_test SOURCES)
    list(TRANSFORM sources PREPEND ${CMAKE_SOURCE_DIR}/tests/unit/kernels/)
  else()
    set(sources ${name}_test.cc device.cc)
  endif()
  add_executable(gpu_${name}_test ${sources} old_libc.cc)
  target_link_libraries(gpu_${name}_test PRIVATE kvtriage_flags kvtriage_each_device_real kvtriage_test_support
    kvtriage_placed_cache kvtriage_random_move GTest::gmock GTest::gtest_main)
  target_compile_definitions(gpu_${name}_test PRIVATE KVTRIAGE_SOURCE_DIR="." KVTRIAGE_BIN_DIR=".")
  target_link_options(gpu_${name}_test PRIVATE -static-libstdc++ -static-libgcc)
  set_target_properties(gpu_${name}_test PROPERTIES OUTPUT_NAME ${name}_test
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/gpu_bin)
  list(APPEND programs gpu_${name}_test)
endforeach()
add_custom_target(gpu_package
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/pack.sh ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}
  DEPENDS ${programs} USES_TERMINAL)
