// The names of the C++ standard library that the core's headers use: NVRTC has no headers of its own.
#pragma once

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
static_assert(sizeof(uint64_t) == 8 && sizeof(uint32_t) == 4 && sizeof(uint16_t) == 2);

__forceinline__ __device__ uint32_t __builtin_bswap32(uint32_t x) { return __byte_perm(x, 0, 0x0123); }
__forceinline__ __device__ uint64_t __builtin_bswap64(uint64_t x) {
  return static_cast<uint64_t>(__builtin_bswap32(static_cast<uint32_t>(x))) << 32 |
         __builtin_bswap32(static_cast<uint32_t>(x >> 32));
}

__forceinline__ __device__ int __builtin_popcountll(uint64_t x) { return __popcll(x); }
__forceinline__ __device__ int __builtin_ctzll(uint64_t x) { return __ffsll(static_cast<long long>(x)) - 1; }
__forceinline__ __device__ int __builtin_clzll(uint64_t x) { return __clzll(static_cast<long long>(x)); }
#define __builtin_memcpy memcpy
__forceinline__ __device__ void __builtin_prefetch(const void*, int = 0) {}

// Words that a host changes meanwhile: none here, where kernels of one filter run one after the other.
inline constexpr int __ATOMIC_RELAXED = 0, __ATOMIC_ACQUIRE = 2;
template <typename T>
__forceinline__ __device__ T __atomic_load_n(const T* p, int) {
  return *p;
}
__forceinline__ __device__ void __atomic_thread_fence(int) {}

namespace std {

using ::memcpy;

template <bool Condition, typename A, typename B>
struct conditional {
  using type = A;
};
template <typename A, typename B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool Condition, typename A, typename B>
using conditional_t = typename conditional<Condition, A, B>::type;

enum class endian { little, native = little };  // as every GPU is

template <typename T>
__forceinline__ __device__ constexpr T rotl(T value, int by) {
  return value << by | value >> (8 * static_cast<int>(sizeof(T)) - by);
}

}  // namespace std
