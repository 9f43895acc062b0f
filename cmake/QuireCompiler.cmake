# SPDX-License-Identifier: Apache-2.0
# Compiler cache and warnings.

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(QUIRE_CCACHE ccache)
  mark_as_advanced(QUIRE_CCACHE)
  if(QUIRE_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${QUIRE_CCACHE}")
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
