# SPDX-License-Identifier: Apache-2.0
# aarch64 on a Debian or Ubuntu machine of another architecture: the distribution's cross compiler, its arm64 libraries,
# and programs that run under qemu's emulation of a processor with everything it knows (bf16, i8mm, SVE).
# Used by the preset `aarch64`; scripts/test_aarch64.sh installs what it names.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max)
