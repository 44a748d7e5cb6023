// Reader and Writer of a blocked filter, whose number of hashes is known to the compiler: has_bits and
// set_bits with that number. Included by every kernel, within its namespace.
template <uint32_t BlockLog, uint32_t Hashes>
struct Reader {
  EVENBINS_INLINE bool contains(const uint64_t* block, uint64_t digest) const {
    return has_bits<BlockLog, false>(block, digest, Hashes, 0);
  }
};

template <uint32_t BlockLog, uint32_t Hashes>
struct Writer {
  EVENBINS_INLINE void add(uint64_t* block, uint64_t digest) const {
    set_bits<BlockLog, false>(block, digest, Hashes, 0);
  }
};
