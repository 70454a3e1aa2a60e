# nvcc, wherever it is installed: for the kernels of real devices (kernels/cuda) and for the programs
# that check them there (tests/gpu). Sets KVTRIAGE_NVCC (ON or OFF) and the language's flags.
set(KVTRIAGE_CUDA_ARCHITECTURES 80 90 CACHE STRING
    "GPU architectures that nvcc compiles for; \"all\": every one that ships")
# What ships, as far as the toolkit knows it. The newest goes along as PTX too, for later devices.
set(KVTRIAGE_CUDA_SHIPPED 80 86 89 90 100 120)

set(KVTRIAGE_NVCC OFF)
if(KVTRIAGE_SANITIZE)
  return()  # a sanitizer sees nothing of a device
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "No nvcc: the CUDA backend is left out")
  return()
endif()
set(KVTRIAGE_NVCC ON)

# Numbers without suffixes are what the gates are told (tests/bench/cuda_gates.py).
set(KVTRIAGE_CUDA_NUMBERS ${KVTRIAGE_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_ARCHITECTURES ${KVTRIAGE_CUDA_ARCHITECTURES})
if(KVTRIAGE_CUDA_ARCHITECTURES STREQUAL "all")
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known COMMAND_ERROR_IS_FATAL ANY)
  set(KVTRIAGE_CUDA_NUMBERS)
  foreach(number ${KVTRIAGE_CUDA_SHIPPED})
    if(known MATCHES "compute_${number}\n")
      list(APPEND KVTRIAGE_CUDA_NUMBERS ${number})
    endif()
  endforeach()
  list(TRANSFORM KVTRIAGE_CUDA_NUMBERS APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  list(GET KVTRIAGE_CUDA_NUMBERS -1 newest)
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${newest}-virtual)
endif()

if(KVTRIAGE_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
# Device code is optimised in every build; what else we ask for stands at the targets.
foreach(type RELEASE RELWITHDEBINFO)
  set(CMAKE_CUDA_FLAGS_${type} "-O3 -DNDEBUG")
endforeach()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 stops at 17; the compiler does not
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit REQUIRED)
message(STATUS "nvcc ${CMAKE_CUDA_COMPILER_VERSION}: CUDA kernels for ${CMAKE_CUDA_ARCHITECTURES}")

# kvtriage_cuda_target(NAME): flags of a target with .cu sources for real devices. The compiler's
# report of each source (registers, spills) is kept beside its object, as <object>.report.
function(kvtriage_cuda_target name)
  # C++20, as the headers of kernels/core are; no -use_fast_math, which flushes denormals and breaks NaN.
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo --expt-relaxed-constexpr -Xptxas=-v
                                 -Xcompiler=-Wall -Werror=all-warnings>)
  set_target_properties(${name} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON
    RULE_LAUNCH_COMPILE "${CMAKE_SOURCE_DIR}/cmake/keep_report.sh <OBJECT>")
endfunction()
