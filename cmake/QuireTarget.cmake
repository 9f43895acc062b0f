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
