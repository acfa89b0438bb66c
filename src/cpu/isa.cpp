// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/isa.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "cpu/parallel.h"
#include "hwy/detect_targets.h"
#include "msa/device.h"
#include "msa/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#ifdef MSA_CPU_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace msa::cpu {
namespace {

std::atomic<int> testing_isa{-1};

#if defined(__x86_64__)
/// Half-precision conversions; not every compiler knows the name "f16c".
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

#ifdef MSA_CPU_TILES
/// What the processor has beyond AVX-512; compilers differ in the names they know.
struct Bf16Instructions {
  bool pairs = false;  // what MSA_TILE_OPTIONS ask for: VBMI and AVX512-BF16
  bool amx = false;    // these, and AMX with products of bf16

  Bf16Instructions() {
    constexpr unsigned avx512_vbmi = 1u << 1;                     // leaf 7, ecx
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;  // leaf 7, edx
    constexpr unsigned avx512_bf16 = 1u << 5;                     // leaf 7.1, eax
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
    const bool vbmi = (c & avx512_vbmi) != 0;
    const bool tile_registers = (d & amx_bf16) != 0 && (d & amx_tile) != 0;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return;
    pairs = vbmi && (a & avx512_bf16) != 0;
    amx = pairs && tile_registers;
  }
};

/// The right to use tile registers, which Linux gives on request. It holds for all threads of the
/// process, those of a forked child included.
bool ask_for_amx() {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // the registers' number in the processor's state
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

void add_bf16_isas(std::vector<Isa>& isas) {
  static const Bf16Instructions has;
  static const bool may_use_amx = has.amx && ask_for_amx();
  if (has.pairs) isas.push_back(Isa::avx512_bf16);
  if (may_use_amx) isas.push_back(Isa::amx);
}
#endif

/// The highest set, but on Intel's processors not AVX512-BF16, of which a Xeon does half as many
/// operations a second as of f32 multiply-adds (an instruction takes 0.59 ns there, and 0.14).
Isa fastest(const std::vector<Isa>& available) {
#ifdef MSA_CPU_TILES
  if (available.back() == Isa::avx512_bf16 && __builtin_cpu_is("intel")) return Isa::avx512;
#endif
  return available.back();
}

Isa choose() {
  const std::vector<Isa> available = available_isas();
  const char* wanted = std::getenv("MSA_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return fastest(available);
  std::string allowed;
  for (Isa isa : available) {
    if (std::string(wanted) == name(isa)) return isa;
    allowed += (allowed.empty() ? "" : ", ") + std::string(name(isa));
  }
  // Another machine may have a set that exists; a name that does not exist is a slip.
  constexpr Isa all[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};
  const bool exists = std::any_of(std::begin(all), std::end(all),
                                  [&](Isa isa) { return std::string(wanted) == name(isa); });
  throw Error(exists ? ErrorCode::unsupported : ErrorCode::invalid_argument,
              "environment variable MSA_CPU_ISA is '" + std::string(wanted) +
                  "'; allowed on this machine: " + allowed);
}

}  // namespace

const char* name(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
  }
  return "invalid";
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
#if defined(__x86_64__)
  // The set that the compiler's flags ask for needs no question: without it nothing here would run.
  const auto add = [&isas](Isa isa, std::int64_t target, bool executable) {
    const bool compiled = (HWY_TARGETS & target) != 0;
    if (compiled && (executable || HWY_STATIC_TARGET == target)) isas.push_back(isa);
  };
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd");
  add(Isa::baseline, HWY_BASELINE_SCALAR, true);
  add(Isa::avx2, HWY_AVX2, avx2);
  add(Isa::avx512, HWY_AVX3, avx512);
#ifdef MSA_CPU_TILES
  if (avx512) add_bf16_isas(isas);
#endif
#else
  isas.push_back(Isa::baseline);
#endif
  return isas;
}

Isa chosen_isa() {
  const int forced = testing_isa.load(std::memory_order_relaxed);
  if (forced >= 0) return static_cast<Isa>(forced);
  static const Isa isa = choose();
  return isa;
}

void set_isa_for_testing(Isa isa) {
  testing_isa.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace msa::cpu

namespace msa {

CpuInfo cpu_info() {
  CpuInfo info;
  info.isa = cpu::name(cpu::chosen_isa());
  for (cpu::Isa isa : cpu::available_isas()) info.available.emplace_back(cpu::name(isa));
  info.threads = cpu::num_threads();
  return info;
}

}  // namespace msa
