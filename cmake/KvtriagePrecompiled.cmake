# Headers that most sources include, compiled once: half of a typical source's time is theirs. For the
# sanitizers' builds; the others go on to show that every file includes what it uses.
option(KVTRIAGE_PRECOMPILED "Precompile the headers of the standard library, Abseil, Protocol Buffers and GoogleTest" OFF)
if(NOT KVTRIAGE_PRECOMPILED OR KVTRIAGE_KERNELS_ONLY)
  function(kvtriage_precompiled target)
  endfunction()
  return()
endif()

# It is part of what has to be the same; gRPC's users get it from gRPC.
target_compile_options(kvtriage_flags INTERFACE $<${KVTRIAGE_CXX}:-pthread>)
set(common <algorithm> <array> <bit> <cstdint> <functional> <map> <memory> <mutex> <optional> <random>
    <span> <string> <thread> <utility> <variant> <vector> <absl/status/statusor.h> <google/protobuf/message.h>
    <google/protobuf/repeated_field.h>)
set(empty ${CMAKE_BINARY_DIR}/precompiled.cc)
file(WRITE ${empty} "int main() { return 0; }\n")
# A library's code is compiled for a library, a program's for a program: one each.
add_library(kvtriage_library_headers OBJECT ${empty})
target_link_libraries(kvtriage_library_headers PRIVATE kvtriage_flags)
target_precompile_headers(kvtriage_library_headers PRIVATE ${common})
add_executable(kvtriage_test_headers ${empty})
target_link_libraries(kvtriage_test_headers PRIVATE kvtriage_flags GTest::gmock GTest::gtest_main)
target_precompile_headers(kvtriage_test_headers PRIVATE ${common} <gtest/gtest.h> <gmock/gmock.h>)
set_target_properties(kvtriage_test_headers PROPERTIES EXCLUDE_FROM_ALL ON)

# Sources of `target` start from the headers of its kind. Not for targets with compile options of their own.
function(kvtriage_precompiled target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_precompile_headers(${target} REUSE_FROM kvtriage_test_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM kvtriage_library_headers)
  endif()
endfunction()
