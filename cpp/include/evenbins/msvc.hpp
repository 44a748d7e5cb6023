// The built-in functions of GCC and Clang that the core uses, for MSVC on x86-64. Not included by anybody else.
#pragma once

#include <intrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#if !defined(_M_X64)
#error "with MSVC evenbins builds for x86-64 only; use clang-cl"
#endif

#define __x86_64__ 1
#if defined(__AVX2__)
#define __BMI2__ 1
#endif

enum { __ATOMIC_RELAXED, __ATOMIC_ACQUIRE = 2, __ATOMIC_RELEASE };

__forceinline void __builtin_prefetch(const void* address, int = 0) {
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
}
__forceinline int __builtin_popcount(uint32_t x) { return std::popcount(x); }
__forceinline int __builtin_popcountll(uint64_t x) { return std::popcount(x); }
__forceinline int __builtin_ctz(uint32_t x) { return std::countr_zero(x); }
__forceinline int __builtin_ctzll(uint64_t x) { return std::countr_zero(x); }
__forceinline int __builtin_clzll(uint64_t x) { return std::countl_zero(x); }
__forceinline uint32_t __builtin_bswap32(uint32_t x) { return _byteswap_ulong(x); }
__forceinline uint64_t __builtin_bswap64(uint64_t x) { return _byteswap_uint64(x); }
__forceinline void __builtin_memcpy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

// x86-64 reads and writes an aligned word whole, loads in their order and stores in theirs: only the compiler has to be
// kept from reordering.
template <typename T>
__forceinline T __atomic_load_n(const T* from, int) {
  const T value = *static_cast<const volatile T*>(from);
  _ReadWriteBarrier();
  return value;
}
template <typename T>
__forceinline void __atomic_store_n(T* to, T value, int) {
  _ReadWriteBarrier();
  *static_cast<volatile T*>(to) = value;
}
__forceinline uint64_t __atomic_fetch_add(uint64_t* to, uint64_t more, int) {
  return static_cast<uint64_t>(
      _InterlockedExchangeAdd64(reinterpret_cast<volatile long long*>(to), static_cast<long long>(more)));
}
__forceinline uint64_t __atomic_fetch_sub(uint64_t* from, uint64_t less, int order) {
  return __atomic_fetch_add(from, ~less + 1, order);
}
__forceinline void __atomic_thread_fence(int) { _ReadWriteBarrier(); }
