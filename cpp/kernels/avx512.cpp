// AVX-512 (F, DQ, BW, VL): one multiplication makes all sixteen positions, one permutation fetches their
// words from the block, one masked test answers.
#define EVENBINS_KERNEL_NAMESPACE avx512_kernel
#define EVENBINS_KERNEL_NAME "avx512"
#include <immintrin.h>

#include "evenbins/lanes.hpp"
#include "scalar_add.hpp"

namespace evenbins::avx512_kernel {
namespace {

template <uint32_t BlockLog, bool Wide>
class Probe {
 public:
  explicit Probe(uint32_t hashes)
      : odd_(_mm512_loadu_si512(kOdd.data())),
        one_(_mm512_set1_epi32(1)),
        first_(mask(Wide ? kLanes : hashes)),
        second_(mask(Wide ? hashes - kLanes : 0)),
        hashes_(hashes) {}

  EVENBINS_INLINE bool contains(const uint64_t* block, uint64_t digest) const {
    const __m512i words = BlockLog == 9 ? _mm512_loadu_si512(block)
                                        : _mm512_castsi256_si512(_mm256_loadu_si256(
                                              reinterpret_cast<const __m256i*>(block)));
    const uint64_t r = remix(digest);
    __mmask16 missing = missing_bits(words, positions(r), first_);
    if constexpr (Wide) missing |= missing_bits(words, positions(remix_again(r)), second_);
    return missing == 0;
  }

  EVENBINS_INLINE void add(uint64_t* block, uint64_t digest) const {
    alignas(64) uint32_t p[kMaxBlockedHashes];
    const uint64_t r = remix(digest);
    _mm512_store_si512(p, positions(r));
    if constexpr (Wide) _mm512_store_si512(p + kLanes, positions(remix_again(r)));
    set_positions(block, p, hashes_);
  }

 private:
  static __mmask16 mask(uint32_t n) { return static_cast<__mmask16>((1u << n) - 1); }

  EVENBINS_INLINE __m512i positions(uint64_t r) const {
    return _mm512_srli_epi32(_mm512_mullo_epi32(_mm512_set1_epi64(static_cast<int64_t>(r)), odd_), 32 - BlockLog);
  }
  EVENBINS_INLINE __mmask16 missing_bits(__m512i words, __m512i p, __mmask16 lanes) const {
    const __m512i word = _mm512_permutexvar_epi32(_mm512_srli_epi32(p, 5), words);
    return _mm512_mask_testn_epi32_mask(lanes, word, _mm512_rolv_epi32(one_, p));  // rotates by p mod 32
  }

  __m512i odd_, one_;
  __mmask16 first_, second_;
  uint32_t hashes_;
};

EVENBINS_INLINE uint64_t line_is_zero(const uint64_t* line) {
  const __m512i words = _mm512_loadu_si512(line);
  return _mm512_test_epi64_mask(words, words) == 0;
}

}  // namespace
}  // namespace evenbins::avx512_kernel

#include "body.hpp"
