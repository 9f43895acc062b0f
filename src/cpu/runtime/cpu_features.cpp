// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <cstdint>

namespace quire::cpu {
namespace {

constexpr bool bit(std::uint64_t word, int index) {
  return ((word >> index) & 1u) != 0;
}

#if defined(__x86_64__)

struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// Register state the operating system saves: the processor having an instruction is not enough.
std::uint64_t enabled_state() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

// Tiles are off until a process asks; an old kernel or a sandbox may refuse.
bool request_tiles() {
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kRead = 0x1022;     // ARCH_GET_XCOMP_PERM
  constexpr long kTileData = 18;
  std::uint64_t granted = 0;
  if (syscall(SYS_arch_prctl, kRequest, kTileData) != 0) return false;
  if (syscall(SYS_arch_prctl, kRead, &granted) != 0) return false;
  return bit(granted, kTileData);
}

CpuFeatures probe() {
  CpuFeatures features;
  const Cpuid basic = cpuid(1, 0);
  features.x86_64_v2 =
      bit(basic.ecx, 9) && bit(basic.ecx, 19) && bit(basic.ecx, 20) && bit(basic.ecx, 23);
  const bool has_xsave = bit(basic.ecx, 27);
  if (!has_xsave) return features;
  const std::uint64_t state = enabled_state();
  const bool has_ymm = (state & 0x6) == 0x6;
  const bool has_zmm = has_ymm && (state & 0xe0) == 0xe0;
  const bool has_tiles = (state & 0x60000) == 0x60000;
  const Cpuid seven = cpuid(7, 0);
  const Cpuid seven_one = cpuid(7, 1);
  features.avx2 = has_ymm && bit(seven.ebx, 3) && bit(seven.ebx, 5) && bit(seven.ebx, 8) &&
                  bit(basic.ecx, 12) && bit(basic.ecx, 29);
  features.avx512 = has_zmm && features.avx2 && bit(seven.ebx, 16) && bit(seven.ebx, 17) &&
                    bit(seven.ebx, 30) && bit(seven.ebx, 31);
  features.avx512_vnni = features.avx512 && bit(seven.ecx, 11);
  features.avx512_bf16 = features.avx512 && bit(seven_one.eax, 5);
  features.avx512_vbmi = features.avx512 && bit(seven.ecx, 1);
  const bool has_amx = features.avx512_bf16 && has_tiles && bit(seven.edx, 24) && request_tiles();
  features.amx_bf16 = has_amx && bit(seven.edx, 22);
  features.amx_int8 = has_amx && bit(seven.edx, 25);
  return features;
}

#elif defined(__aarch64__)

CpuFeatures probe() {
  const std::uint64_t first = getauxval(AT_HWCAP);
  const std::uint64_t second = getauxval(AT_HWCAP2);
  CpuFeatures features;
  features.neon = bit(first, 1);
  features.neon_dotprod = bit(first, 20);
  features.neon_i8mm = bit(second, 13);
  features.neon_bf16 = bit(second, 14);
  return features;
}

#else

CpuFeatures probe() {
  return {};
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = probe();
  return features;
}

}  // namespace quire::cpu
