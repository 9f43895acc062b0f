# SPDX-License-Identifier: Apache-2.0
# Builds consumer/main.cpp and, as C, consumer/main.c with the flags that pkg-config gives, from a prefix that was moved.
# Run with cmake -P.
include("${TEST_DIR}/steps.cmake")

install_and_move("${SCRATCH_DIR}/prefix")
file(GLOB_RECURSE description "${SCRATCH_DIR}/prefix/*/quire.pc")
get_filename_component(folder "${description}" DIRECTORY)
set(ENV{PKG_CONFIG_PATH} "${folder}")
# The linker takes the shared library where there are both; what asks for the static one takes that away first.
set(asked --cflags --libs)
if(KIND STREQUAL "static")
  list(PREPEND asked --static)
  file(GLOB_RECURSE shared_libraries "${SCRATCH_DIR}/prefix/*/libquire.so*")
  if(shared_libraries)
    file(REMOVE ${shared_libraries})
  endif()
endif()
execute_process(COMMAND "${PKG_CONFIG}" ${asked} "quire = ${VERSION}" OUTPUT_VARIABLE flags
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
separate_arguments(own_flags UNIX_COMMAND "${FLAGS}")
get_filename_component(libraries "${folder}/.." ABSOLUTE)
run("${COMPILER}" -std=c++20 ${own_flags} "${TEST_DIR}/consumer/main.cpp" -o "${SCRATCH_DIR}/app" ${flags}
  "-Wl,-rpath,${libraries}")
run("${C_COMPILER}" -std=c11 -Wall -Wextra -Werror -pedantic ${own_flags} "${TEST_DIR}/consumer/main.c"
  -o "${SCRATCH_DIR}/c_app" ${flags} "-Wl,-rpath,${libraries}")
foreach(program IN ITEMS app c_app)
  run("${SCRATCH_DIR}/${program}")
  expect_needed_libraries("${SCRATCH_DIR}/${program}" ${KIND})
endforeach()
