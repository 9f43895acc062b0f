# SPDX-License-Identifier: Apache-2.0
# Compiler cache and warnings.

option(QUIRE_COMPILER_CACHE "Compile through ccache where it is found" ${PROJECT_IS_TOP_LEVEL})
if(QUIRE_COMPILER_CACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(QUIRE_CCACHE ccache)
  mark_as_advanced(QUIRE_CCACHE)
  if(QUIRE_CCACHE)
    # Without the sloppiness ccache refuses every source that uses a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      "${QUIRE_CCACHE}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${QUIRE_CCACHE}")
  endif()
endif()

# Options per target, not an interface library: those would have to be exported with the static libraries.
function(quire_set_warnings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall>
    $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${QUIRE_WERROR}>>:-Werror>)
endfunction()

# -O3 is for kernels (src/cpu/kernels sets its own); elsewhere it only costs compile time.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")  # CMake's own: nobody chose it
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()

# quire_parse_once(<target> <header>...)
# Headers that most sources of the target include are parsed once per target: half of a small source's compile time.
function(quire_parse_once target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>" OUTPUT_VARIABLE headers)
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# quire_compile_quickly(<target> <header>...)
# For tests and tools, whose time goes into parsing large headers, not into running: little optimisation, and the
# headers parsed once per target.
function(quire_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  quire_parse_once(${target} ${ARGN})
endfunction()
