# One function per kind of target, so that flags and include paths are said once.

set(KVTRIAGE_INCLUDE_DIRS
  ${CMAKE_SOURCE_DIR}
  ${CMAKE_SOURCE_DIR}/kernels/include
  ${CMAKE_SOURCE_DIR}/client/cpp/include)

# Interface target with the flags of our own code.
add_library(kvtriage_flags INTERFACE)
target_include_directories(kvtriage_flags INTERFACE ${KVTRIAGE_INCLUDE_DIRS})
set(KVTRIAGE_CXX $<COMPILE_LANGUAGE:CXX>)  # nvcc has options of its own (KvtriageCuda.cmake)
target_compile_options(kvtriage_flags INTERFACE $<${KVTRIAGE_CXX}:-Wall -Wextra -Wno-missing-field-initializers>)
if(KVTRIAGE_WERROR)
  target_compile_options(kvtriage_flags INTERFACE $<${KVTRIAGE_CXX}:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(kvtriage_flags INTERFACE -Wthread-safety)
endif()
if(NOT KVTRIAGE_SANITIZE)
  # Hardening of the shipped programs; sanitizers bring their own checks.
  target_compile_options(kvtriage_flags INTERFACE $<${KVTRIAGE_CXX}:-fstack-protector-strong>)
  target_compile_definitions(kvtriage_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=2>)
  target_link_options(kvtriage_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
else()
  target_compile_options(kvtriage_flags INTERFACE -fsanitize=${KVTRIAGE_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(kvtriage_flags INTERFACE -fsanitize=${KVTRIAGE_SANITIZE})
endif()
if(KVTRIAGE_FAULT_POINTS)
  target_compile_definitions(kvtriage_flags INTERFACE KVTRIAGE_FAULT_POINTS=1)
endif()
target_compile_definitions(kvtriage_flags INTERFACE KVTRIAGE_VERSION="${PROJECT_VERSION}")

# kvtriage_library(NAME SOURCES ... DEPS ... [OWN_OPTIONS]): a static library; headers are found from the
# root. OWN_OPTIONS: it is compiled with options of its own, and so without the precompiled headers.
function(kvtriage_library name)
  cmake_parse_arguments(ARG "OWN_OPTIONS" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC kvtriage_flags ${ARG_DEPS})
  if(NOT ARG_OWN_OPTIONS)
    kvtriage_precompiled(${name})
  endif()
endfunction()

# kvtriage_program(NAME SOURCES ... DEPS ...)
function(kvtriage_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvtriage_flags ${ARG_DEPS})
  target_link_options(${name} PRIVATE -pie)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# Builds every test that the tsan preset runs.
add_custom_target(kvtriage_tsan_tests)

# kvtriage_test(NAME SOURCES ... DEPS ... [LABEL label] [TIMEOUT s] [NO_TSAN | TSAN]): a GoogleTest program,
# one ctest entry. LABEL unit (default), golden, property, integration. Unit and property tests also run
# under ThreadSanitizer unless NO_TSAN says that they link gRPC or fork; others where TSAN says so. Tests
# find the repository at KVTRIAGE_SOURCE_DIR and programs at KVTRIAGE_BIN_DIR.
function(kvtriage_test name)
  cmake_parse_arguments(ARG "NO_TSAN;TSAN" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT KVTRIAGE_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvtriage_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE KVTRIAGE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             KVTRIAGE_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests_bin)
  kvtriage_precompiled(${name})
  add_test(NAME ${name} COMMAND ${name})
  set(labels ${ARG_LABEL})
  if(ARG_TSAN OR (NOT ARG_NO_TSAN AND ARG_LABEL MATCHES "^(unit|property)$"))
    list(APPEND labels tsan)
    add_dependencies(kvtriage_tsan_tests ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# kvtriage_bench(NAME SOURCES ... DEPS ...)
function(kvtriage_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(NOT KVTRIAGE_BUILD_BENCH)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvtriage_flags kvtriage_bench_ratio ${ARG_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench_bin)
endfunction()
