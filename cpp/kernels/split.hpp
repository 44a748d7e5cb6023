// `split` in plain C++, as text for the kernels that have nothing better: each item is written to both
// outputs, and counted in one.
size_t split(const uint64_t* items, size_t n, uint64_t bound, uint64_t* low, uint64_t* high) {
  size_t below = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t item = items[i];
    low[below] = item;
    high[i - below] = item;
    below += item < bound;
  }
  return below;
}
