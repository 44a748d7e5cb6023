// Kernels of a count-min sketch (countmin.hpp). Additions commute, so the order of the threads does not matter.
#pragma once

#include "evenbins/countmin_view.hpp"
#include "keys.cuh"

namespace evenbins::gpu {

// Calls act(counter) with the number of the key's counter in each row, counted from the first row on.
template <typename F>
EVENBINS_INLINE void each_counter(const CountMinView& f, uint64_t digest, F&& act) {
  const uint64_t per_word = f.two_hash ? f.depth : 2;
  for (uint64_t row = 0, word = 0; row < f.rows; ++word) {
    const uint64_t bits = splitmix(digest, word), second = scale_low_half(bits, f.width);
    uint64_t at = scale_high_half(bits, f.width);
    for (uint64_t j = 0; j < per_word && row < f.rows; ++j, ++row) {
      act(row * f.width + at);
      at = f.two_hash ? add_mod(at, second, f.width) : second;
    }
  }
}

template <typename Keys>
__global__ void __launch_bounds__(256)
    countmin_add(uint64_t* counters, uint64_t width, uint64_t depth, uint64_t rows, uint32_t two_hash, const void* data,
                 const void* more, const KeyHash* hash, uint64_t n, const uint64_t* weights) {
  const Keys keys(data, more, hash);
  const CountMinView f{counters, width, depth, rows, two_hash != 0};
  for (uint64_t i = thread_number(); i < n; i += thread_count()) {
    const unsigned long long weight = weights == nullptr ? 1 : load_once(weights + i);
    if (weight == 0) continue;
    each_counter(f, keys.digest(i), [&](uint64_t counter) {
      atomicAdd(reinterpret_cast<unsigned long long*>(counters + counter), weight);
    });
  }
}

template <typename Keys>
__global__ void __launch_bounds__(256)
    countmin_count(uint64_t* counters, uint64_t width, uint64_t depth, uint64_t rows, uint32_t two_hash,
                   const void* data, const void* more, const KeyHash* hash, uint64_t n, uint64_t* out) {
  const Keys keys(data, more, hash);
  const CountMinView f{counters, width, depth, rows, two_hash != 0};
  for (uint64_t i = thread_number(); i < n; i += thread_count()) {
    uint64_t least = ~uint64_t{0};
    each_counter(f, keys.digest(i), [&](uint64_t counter) { least = min(least, counters[counter]); });
    store_once(out + i, least);
  }
}

}  // namespace evenbins::gpu
