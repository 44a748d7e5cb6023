// `lower8` in plain C++, as text for the kernels that have nothing better.
EVENBINS_INLINE void lower8(uint64_t* values, const uint64_t* words, const uint64_t* at) {
  for (size_t i = 0; i < 8; ++i) {
    const uint64_t word = load_word(words + at[i]);
    values[i] = word < values[i] ? word : values[i];
  }
}
