// Plain C++: runs everywhere, and says what the others must do.
#define EVENBINS_KERNEL_NAMESPACE generic_kernel
#define EVENBINS_KERNEL_NAME "generic"
#include "evenbins/plain_bits.hpp"

namespace evenbins::generic_kernel {
namespace {

#include "lower8.hpp"
#include "mask.hpp"
#include "split.hpp"

EVENBINS_INLINE uint64_t line_is_zero(const uint64_t* line) {
  uint64_t any = 0;
  for (int i = 0; i < 8; ++i) any |= line[i];
  return any == 0;
}

EVENBINS_INLINE uint32_t match8(const uint64_t* line, uint64_t word) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < 8; ++i) mask |= static_cast<uint32_t>(line[i] == word) << i;
  return mask;
}

}  // namespace
}  // namespace evenbins::generic_kernel

#include "body.hpp"
