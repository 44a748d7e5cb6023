// mask_bits by way of set_bits. Included by the kernels that have no faster one, within their namespace.
constexpr bool kMaskByWords = true;  // it is written word by word: a wider read that follows would wait for that

template <uint32_t BlockLog>
EVENBINS_INLINE void mask_bits(uint64_t* mask, uint64_t word, uint32_t hashes) {
  for (uint32_t i = 0; i < 1u << (BlockLog - 6); ++i) mask[i] = 0;
  set_bits<BlockLog, false>(mask, word, hashes, 0);
}
