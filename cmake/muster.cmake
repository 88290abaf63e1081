# Warnings, sanitizers and the target helpers that every folder uses.
add_compile_options(-Wall -Wextra -Werror)
add_link_options(-fuse-ld=mold)

set(MUSTER_SANITIZE "" CACHE STRING "Value for -fsanitize=, e.g. address,undefined or thread")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12 uses what it calls deprecated itself, and only gcc overlooks that.
  add_compile_options(-Wno-deprecated-declarations)
endif()
if(MUSTER_SANITIZE)
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
  # For tests whose counts have to be smaller then.
  add_compile_definitions(MUSTER_SANITIZED)
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(absl REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson REQUIRED)
find_package(GTest REQUIRED)
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp REQUIRED CONFIG)
find_package(benchmark REQUIRED)
find_package(Protobuf REQUIRED)
pkg_check_modules(grpcpp REQUIRED IMPORTED_TARGET grpc++)
# Boost 1.81: Asio and Beast, headers only.
find_path(BOOST_INCLUDE_DIR boost/beast.hpp REQUIRED)
add_library(boost_headers INTERFACE)
target_include_directories(boost_headers SYSTEM INTERFACE ${BOOST_INCLUDE_DIR})
target_compile_definitions(boost_headers INTERFACE BOOST_ASIO_NO_DEPRECATED)

# What most sources include, parsed and instantiated once for all libraries and programs, and once
# more with GoogleTest for all tests. Only clang gains by it: gcc reads a precompiled header slower
# than most of the headers.
set(MUSTER_PRECOMPILE OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(MUSTER_PRECOMPILE ON)
endif()
set(common_headers
  <algorithm> <array> <atomic> <functional> <map> <memory> <mutex> <optional> <random> <set> <span>
  <sstream> <string> <string_view> <thread> <vector>
  <absl/container/flat_hash_map.h> <absl/status/status.h> <absl/status/statusor.h>
  <absl/strings/str_cat.h> <absl/strings/str_join.h> <absl/strings/str_split.h>
  <absl/time/clock.h> <absl/time/time.h>
  <fmt/format.h> <nlohmann/json.hpp>)
set(common_packages absl::flat_hash_map absl::status absl::statusor absl::strings absl::time fmt::fmt
  nlohmann_json::nlohmann_json)

# muster_precompiled(NAME OPTION HEADERS... PACKAGES...): NAME's headers, which other targets take over.
function(muster_precompiled name option)
  if(NOT MUSTER_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "HEADERS;PACKAGES" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cc "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE ${ARG_PACKAGES})
  target_compile_options(${name} PRIVATE ${option})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

# A precompiled header holds no time stamp, so that ccache knows it again.
if(MUSTER_PRECOMPILE)
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
endif()
muster_precompiled(muster_headers "" HEADERS ${common_headers} PACKAGES ${common_packages})
muster_precompiled(muster_test_headers -O0
  HEADERS ${common_headers} <gmock/gmock.h> <gtest/gtest.h>
  PACKAGES ${common_packages} GTest::gmock GTest::gtest)

# Many sources in one: a build from nothing takes a third of the time. Off in the preset debug, where
# sources are edited, and where each has to compile by itself.
option(MUSTER_UNITY "Compile a target's sources together" OFF)

# {fmt} has headers and a shared library here, but no archive; this is one, of what formats text.
file(WRITE ${CMAKE_BINARY_DIR}/fmt_archive.cc "#include <fmt/format-inl.h>
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
")

# muster_archive(OUT PACKAGE): sets OUT to what links PACKAGE's archive where PACKAGE links its shared
# library: absl::NAME, fmt::fmt, yaml-cpp or OpenSSL::Crypto. Everything else is its own.
function(muster_archive out package)
  set(${out} ${package} PARENT_SCOPE)
  if(NOT package MATCHES "^absl::|^fmt::fmt$|^yaml-cpp$|^OpenSSL::Crypto$")
    return()
  endif()
  string(REPLACE "::" "_" archive archive_${package})
  set(${out} ${archive} PARENT_SCOPE)
  if(TARGET ${archive})
    return()
  endif()
  get_target_property(shared ${package} IMPORTED_LOCATION_NONE)
  if(NOT shared)
    get_target_property(shared ${package} IMPORTED_LOCATION)
  endif()
  if(package STREQUAL "fmt::fmt")
    add_library(${archive} STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/fmt_archive.cc)
  elseif(shared)
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" file ${shared})
    add_library(${archive} STATIC IMPORTED GLOBAL)
    set_target_properties(${archive} PROPERTIES IMPORTED_LOCATION ${file})
  else()
    add_library(${archive} INTERFACE IMPORTED GLOBAL)
  endif()
  foreach(property IN ITEMS
      INTERFACE_INCLUDE_DIRECTORIES INTERFACE_COMPILE_DEFINITIONS INTERFACE_COMPILE_FEATURES)
    get_target_property(value ${package} ${property})
    if(value)
      set_target_properties(${archive} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
  get_target_property(links ${package} INTERFACE_LINK_LIBRARIES)
  if(NOT links)
    return()
  endif()
  set(archives "")
  foreach(link IN LISTS links)
    muster_archive(link ${link})
    list(APPEND archives ${link})
  endforeach()
  set_target_properties(${archive} PROPERTIES INTERFACE_LINK_LIBRARIES "${archives}")
endfunction()

# Sets how a target of the project's own sources is compiled, with the headers of HEADERS.
function(muster_compile name headers)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  if(MUSTER_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM ${headers})
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${MUSTER_UNITY} UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# muster_library(NAME SOURCES... DEPS...): a static library whose headers are included from the
# project's root. Where MUSTER_ARCHIVES is set, it needs none of its packages' shared libraries.
function(muster_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  muster_compile(${name} muster_headers)
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  if(MUSTER_ARCHIVES)
    foreach(dependency IN LISTS ARG_DEPS)
      muster_archive(dependency ${dependency})
      target_link_libraries(${name} PUBLIC ${dependency})
    endforeach()
  else()
    target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  endif()
endfunction()

set(sanitizer_options
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1
  UBSAN_OPTIONS=print_stacktrace=1
  TSAN_OPTIONS=second_deadlock_stack=1:suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp)

# muster_optimize_sanitized(NAME): this library is optimised even with a sanitizer, because tests call
# it more often than waiting is worth.
function(muster_optimize_sanitized name)
  if(MUSTER_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)
    # Precompiled headers are unoptimised then.
    set_target_properties(${name} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# The test binaries of the labels unit and scenario: what the sanitizer builds build. And those of
# them that say MUSTER_SANITIZED, so do more without: they have the label "optimised" as well.
add_custom_target(checks)
add_custom_target(optimised)

if(NOT MUSTER_SANITIZE)
  add_library(muster_single_threaded OBJECT ${CMAKE_SOURCE_DIR}/tests/single_threaded.cc)
endif()

# muster_test(NAME [SINGLE_THREADED] SOURCES... DEPS...): a GoogleTest binary, run by ctest as one
# test with the label "unit" (or LABEL), unoptimised unlike what it tests, from the project's root,
# for at most TIMEOUT seconds (300; four times that with a sanitizer). Its cases are counted from the
# XML that it leaves in gtest/ of the build folder. A SINGLE_THREADED one fails if it starts a
# thread, and the thread sanitizer, which could find nothing in it, doesn't run it.
function(muster_test name)
  cmake_parse_arguments(ARG "SINGLE_THREADED" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  muster_compile(${name} muster_test_headers)
  target_compile_options(${name} PRIVATE -O0)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(ARG_SINGLE_THREADED AND MUSTER_SANITIZE MATCHES "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  if(ARG_SINGLE_THREADED AND NOT MUSTER_SANITIZE)
    target_link_libraries(${name} PRIVATE muster_single_threaded)
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(MUSTER_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  set(optimised_sources "")
  if(NOT MUSTER_SANITIZE AND ARG_LABEL MATCHES "^(unit|scenario)$")
    foreach(source IN LISTS ARG_SOURCES)
      file(STRINGS ${source} said REGEX MUSTER_SANITIZED)
      if(said)
        list(APPEND optimised_sources ${source})
      endif()
    endforeach()
  endif()
  if(optimised_sources)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${optimised_sources})
    list(APPEND ARG_LABEL optimised)
    add_dependencies(optimised ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/gtest/${name}.xml;${sanitizer_options}")
  if(ARG_LABEL MATCHES "^(unit|scenario)")
    add_dependencies(checks ${name})
  endif()
endfunction()

# All benchmarks; `./run bench` builds and runs each of them.
add_custom_target(benchmarks)

# muster_bench(NAME SOURCES... DEPS...): a program in bench/ of the build folder that prints its
# figures and exits non-zero when one of them misses its bound.
function(muster_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  muster_compile(${name} muster_headers)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  add_dependencies(benchmarks ${name})
endfunction()
