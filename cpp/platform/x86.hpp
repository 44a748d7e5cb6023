// What a processor of the x86 family can do, by what CPUID answers. Compilers have this built in, but not for every system.
#pragma once

#include <cstdint>

#include "evenbins/platform.hpp"

namespace evenbins::platform {

struct CpuidWords {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

// `ask(leaf)` returns the words of a leaf; `enabled_states()` which registers the system saves (XGETBV 0).
template <typename Ask, typename States>
Processor processor_by(const Ask& ask, const States& enabled_states) {
  const auto bit = [](uint32_t word, uint32_t number) { return (word >> number & 1) != 0; };
  Processor found;
  const CpuidWords first = ask(0), basic = ask(1);
  if (first.a < 7) return found;
  const CpuidWords features = ask(7);
  const uint64_t states = bit(basic.c, 27) ? enabled_states() : 0;
  const bool saves_256 = (states & 6) == 6, saves_512 = (states & 0xE6) == 0xE6;
  found.avx2 = saves_256 && bit(features.b, 5) && bit(features.b, 8);
  found.avx512 = saves_512 && bit(features.b, 16) && bit(features.b, 17) && bit(features.b, 30) && bit(features.b, 31);
  found.avx512vbmi = found.avx512 && bit(features.c, 1);
  const uint32_t family = (basic.a >> 8 & 15) + (basic.a >> 20 & 255);
  const uint32_t model = (basic.a >> 4 & 15) | (basic.a >> 12 & 0xF0);
  const bool amd = first.b == 0x68747541;  // "Auth", of AuthenticAMD
  found.deposits_slowly = amd && (family == 0x17 || (family == 0x15 && model >= 0x60));
  return found;
}

}  // namespace evenbins::platform
