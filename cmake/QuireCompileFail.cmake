# SPDX-License-Identifier: Apache-2.0

# quire_add_compile_fail_test(<source>)
# The source must compile as it is and must not compile with QUIRE_MUST_FAIL defined: a file that is broken for
# another reason (a typo, a missing header) therefore cannot pass. Its line "// expect: TEXT" names the error.
function(quire_add_compile_fail_test source)
  get_filename_component(name "${source}" NAME_WE)
  set(compile "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only
    -I "${PROJECT_SOURCE_DIR}/include" -I "${PROJECT_SOURCE_DIR}/src" "${source}")
  add_test(NAME compile_fail.${name}.control COMMAND ${compile})
  add_test(NAME compile_fail.${name} COMMAND ${compile} -DQUIRE_MUST_FAIL)
  file(STRINGS "${source}" expected REGEX "^// expect: ")
  string(REPLACE "// expect: " "error: .*" expected "${expected}")
  if(NOT expected)
    message(FATAL_ERROR "${source} has no line '// expect: TEXT'")
  endif()
  set_tests_properties(compile_fail.${name} PROPERTIES PASS_REGULAR_EXPRESSION "${expected}")
  set_tests_properties(compile_fail.${name} compile_fail.${name}.control PROPERTIES LABELS compile_fail)
endfunction()
