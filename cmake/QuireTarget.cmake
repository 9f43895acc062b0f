# SPDX-License-Identifier: Apache-2.0

# quire_add_library(<name> [PUBLIC lib...] [PRIVATE lib...])
# A static library of all sources below the current folder.
function(quire_add_library name)
  cmake_parse_arguments(arg "" "" "PUBLIC;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  string(REGEX REPLACE "^quire_" "" short_name ${name})
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" PUBLIC "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  quire_set_warnings(${name})
  quire_parse_once(${name} <algorithm> <array> <cmath> <optional> <span> <string> <vector>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  add_library(quire::${short_name} ALIAS ${name})
  set_property(GLOBAL APPEND PROPERTY QUIRE_LIBRARIES ${name})
endfunction()

# quire_add_c_program(<name> <source>...)
# A C11 program that uses the C interface of libquire.so.
function(quire_add_c_program name)
  add_executable(${name} ${ARGN})
  set_target_properties(${name} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${name} PRIVATE -Wall -Wextra -pedantic $<$<BOOL:${QUIRE_WERROR}>:-Werror>)
  target_link_libraries(${name} PRIVATE quire_shared m)
  # The sanitizer presets: a program brings the run time of the instrumented library that it loads.
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
    target_compile_options(${name} PRIVATE ${flags})
    target_link_options(${name} PRIVATE ${flags})
  endif()
endfunction()
