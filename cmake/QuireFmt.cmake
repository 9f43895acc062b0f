# SPDX-License-Identifier: Apache-2.0
# fmt inside the library: its users, and those of the wheel, need none. Sets QUIRE_FMT, what a part of src/ links.
find_package(fmt 9 REQUIRED)
set(QUIRE_FMT fmt::fmt-header-only)

# Header-only fmt is compiled into each of our objects, 3 s every time. Of version 9 (Debian 12, Ubuntu 24.04) we know
# what its library holds: src/core/format.cpp compiles that once. A namespace of its own keeps it apart from the fmt
# of the program that links us.
if(fmt_VERSION VERSION_LESS 10)
  add_library(quire_fmt INTERFACE)
  get_target_property(quire_fmt_include fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(quire_fmt SYSTEM INTERFACE ${quire_fmt_include})
  target_compile_definitions(quire_fmt INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:FMT_BEGIN_NAMESPACE=namespace fmt { inline namespace v9_quire {>"
    "$<$<COMPILE_LANGUAGE:CXX>:FMT_END_NAMESPACE=}}>")
  set(QUIRE_FMT quire_fmt)
endif()
