// What the kernels need of the GPU, under one name each. A compiler for the CPU builds the kernels too, for tests:
// tests/emulator/cuda_shim.hpp has the built-in functions.
#pragma once

#include "evenbins/hash.hpp"

#define EVENBINS_KERNEL_NAMESPACE gpu  // where the text of the CPU's kernels goes

namespace evenbins::gpu {

inline constexpr uint32_t kWarp = 32, kAllLanes = 0xFFFFFFFF;

// For loops in which the threads of a grid take turns.
EVENBINS_INLINE uint64_t thread_number() { return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
EVENBINS_INLINE uint64_t thread_count() { return static_cast<uint64_t>(gridDim.x) * blockDim.x; }

// Keys and answers pass through once: they must not push the filter out of the cache.
template <typename T>
EVENBINS_INLINE T load_once(const T* p) {
  return __ldcs(p);
}
template <typename T>
EVENBINS_INLINE void store_once(T* p, T value) {
  __stcs(p, value);
}

// Copies 16 bytes of global memory, past the first-level cache, to shared memory; done after `wait_for_copies`.
#ifdef __CUDACC__
EVENBINS_INLINE void copy16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "l"(global)
               : "memory");
}
EVENBINS_INLINE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
EVENBINS_INLINE void copy16(void* shared, const void* global) { std::memcpy(shared, global, 16); }
EVENBINS_INLINE void wait_for_copies() {}
#endif

EVENBINS_INLINE uint64_t shuffle(uint64_t value, uint32_t lane) { return __shfl_sync(kAllLanes, value, lane); }

// Sets bits of a word that other threads change too.
EVENBINS_INLINE void set_bits(uint64_t* word, uint64_t mask) {
  atomicOr(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(mask));
}
EVENBINS_INLINE void set_bits(uint32_t* word, uint32_t mask) { atomicOr(word, mask); }

}  // namespace evenbins::gpu
