// Plain C++: runs everywhere, and says what the others must do.
#define EVENBINS_KERNEL_NAMESPACE generic_kernel
#define EVENBINS_KERNEL_NAME "generic"
#include "evenbins/lanes.hpp"

namespace evenbins::generic_kernel {
namespace {

template <uint32_t BlockLog, uint32_t Hashes>
struct Reader {
  EVENBINS_INLINE bool contains(const uint64_t* block, uint64_t digest) const {
    return every_position(digest, BlockLog, Hashes,
                          [block](uint32_t p) { return (block[p >> 6] >> (p & 63) & 1) != 0; });
  }
};

template <uint32_t BlockLog, uint32_t Hashes>
struct Writer {
  EVENBINS_INLINE void add(uint64_t* block, uint64_t digest) const {
    every_position(digest, BlockLog, Hashes, [block](uint32_t p) {
      block[p >> 6] |= uint64_t{1} << (p & 63);
      return true;
    });
  }
};

#include "split.hpp"

EVENBINS_INLINE uint64_t line_is_zero(const uint64_t* line) {
  uint64_t any = 0;
  for (int i = 0; i < 8; ++i) any |= line[i];
  return any == 0;
}

}  // namespace
}  // namespace evenbins::generic_kernel

#include "body.hpp"
