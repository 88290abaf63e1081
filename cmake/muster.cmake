# Warnings, sanitizers and the two target helpers that every folder uses.
add_compile_options(-Wall -Wextra -Werror)
add_link_options(-fuse-ld=mold)

set(MUSTER_SANITIZE "" CACHE STRING "Value for -fsanitize=, e.g. address,undefined or thread")
if(MUSTER_SANITIZE)
  # gcc's sanitizers make it warn about code in the standard library.
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-sanitize-recover=all -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
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

# muster_library(NAME SOURCES... DEPS...): a static library whose headers are included from the
# project's root.
function(muster_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
endfunction()

# muster_test(NAME SOURCES... DEPS...): a GoogleTest binary, run by ctest as one test with the label
# "unit" (or LABEL). The sanitizer builds run the labels unit and scenario.
function(muster_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
