// SPDX-License-Identifier: Apache-2.0
#include "cpu/runtime/target.h"

#include <array>
#include <cstdlib>

#include "cpu/runtime/cpu_features.h"
#include "quire/error.h"

namespace quire::cpu {
namespace {

constexpr Target kCompiled[] = {
#if defined(QUIRE_HAS_AMX)
    Target::amx,
#endif
#if defined(QUIRE_HAS_AVX512)
    Target::avx512,
#endif
#if defined(QUIRE_HAS_AVX512_VNNI)
    Target::avx512_vnni,
#endif
#if defined(QUIRE_HAS_AVX2)
    Target::avx2,
#endif
#if defined(QUIRE_HAS_NEON_BF16)
    Target::neon_bf16,
#endif
#if defined(QUIRE_HAS_NEON)
    Target::neon,
#endif
    Target::portable,
};

constexpr Target kAll[] = {Target::portable, Target::avx2, Target::avx512_vnni, Target::avx512,
                           Target::amx,      Target::neon, Target::neon_bf16};

bool has_instructions(Target target) {
  const CpuFeatures& cpu = cpu_features();
  switch (target) {
    case Target::portable:
#if defined(__x86_64__)
      return cpu.x86_64_v2;
#else
      return true;
#endif
    case Target::avx2:
      return cpu.avx2;
    case Target::avx512_vnni:
      return cpu.avx512_vnni;
    case Target::avx512:
      return cpu.avx512 && cpu.avx512_vnni && cpu.avx512_bf16;
    case Target::amx:
      return cpu.avx512_vnni && cpu.avx512_vbmi && cpu.amx_bf16 && cpu.amx_int8;
    case Target::neon:
      return cpu.neon;
    case Target::neon_bf16:
      return cpu.neon && cpu.neon_dotprod && cpu.neon_i8mm && cpu.neon_bf16;
  }
  return false;
}

bool is_compiled(Target target) {
  for (const Target compiled : kCompiled) {
    if (compiled == target) return true;
  }
  return false;
}

std::string targets_that_run() {
  std::string list;
  for (const Target target : kCompiled) {
    if (has_instructions(target)) list.append(list.empty() ? "" : ", ").append(name(target));
  }
  return list;
}

// A name that does not run here would leave every call to the reference: slower a thousand times, without a word.
std::optional<Target> forced_target() {
  const std::string_view text = forced_target_name();
  if (text.empty()) return std::nullopt;
  const std::optional<Target> forced = target_from_name(text);
  if (!forced.has_value() || !is_compiled(*forced) || !has_instructions(*forced)) {
    throw Error(ErrorCode::invalid_value, "quire", "QUIRE_CPU_TARGET",
                "one that runs here (" + targets_that_run() + ")", std::string(text));
  }
  return forced;
}

}  // namespace

std::string_view name(Target target) {
  constexpr std::array<std::string_view, 7> kNames{"portable", "avx2", "avx512_vnni", "avx512",
                                                   "amx",      "neon", "neon_bf16"};
  return kNames[static_cast<std::size_t>(target)];
}

std::optional<Target> target_from_name(std::string_view text) {
  for (const Target target : kAll) {
    if (name(target) == text) return target;
  }
  return std::nullopt;
}

std::span<const Target> compiled_targets() {
  return kCompiled;
}

std::string_view forced_target_name() {
  // Read at every call: tests force one target after another in one process.
  const char* text = std::getenv("QUIRE_CPU_TARGET");
  return text == nullptr ? "" : text;
}

std::string why_not(Target target) {
  if (!is_compiled(target)) return "not compiled in this build";
  if (!has_instructions(target)) return "this processor or system lacks its instructions";
  const std::optional<Target> forced = forced_target();
  return forced.value_or(target) == target ? ""
                                           : "QUIRE_CPU_TARGET is " + std::string(name(*forced));
}

}  // namespace quire::cpu
