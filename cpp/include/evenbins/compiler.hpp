// What compilers spell differently: attributes, unrolled loops, integers of 128 bits.
//
//                       GCC, Clang        clang-cl            MSVC             NVRTC (cpp/cuda)
//     attributes        [[gnu::…]]        [[gnu::…]]          [[msvc::…]]      __forceinline__
//     unrolled loops    #pragma           #pragma             as it likes      #pragma
//     128 bits          __int128          uint128.hpp         uint128.hpp      __int128
//     __builtin_…       its own           its own             msvc.hpp         prelude.cuh
//
// clang-cl has __int128, but nothing on Windows provides the functions that divide it.
#pragma once

#if defined(__CUDACC__)
#define EVENBINS_INLINE __forceinline__ __device__
#elif defined(_MSC_VER) && !defined(__clang__)
#define EVENBINS_INLINE __forceinline
#else
#define EVENBINS_INLINE [[gnu::always_inline]] inline
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#include "evenbins/msvc.hpp"
#define EVENBINS_INLINE_LAMBDA [[msvc::forceinline]]
#define EVENBINS_NOINLINE [[msvc::noinline]]
#define EVENBINS_COLD [[msvc::noinline]]
#define EVENBINS_UNROLL(times)
#define EVENBINS_OPAQUE(word)
#else
#define EVENBINS_INLINE_LAMBDA __attribute__((always_inline))
#define EVENBINS_NOINLINE [[gnu::noinline]]
#define EVENBINS_COLD [[gnu::noinline, gnu::cold]]
#define EVENBINS_PRAGMA(text) _Pragma(#text)
#define EVENBINS_UNROLL(times) EVENBINS_PRAGMA(GCC unroll times)
#define EVENBINS_OPAQUE(word) asm("" : "+r"(word))  // the compiler does not know what it holds
#endif

// In a loop that waits for another thread.
#if defined(_MSC_VER) && !defined(__clang__)
#define EVENBINS_PAUSE() _mm_pause()
#elif defined(__x86_64__)
#define EVENBINS_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define EVENBINS_PAUSE() asm volatile("yield")
#else
#define EVENBINS_PAUSE() static_cast<void>(0)
#endif

#if (defined(__SIZEOF_INT128__) && !defined(_MSC_VER) && !defined(EVENBINS_NO_INT128)) || defined(__CUDACC__)
namespace evenbins {
using uint128 = unsigned __int128;
}
#else
#include "evenbins/uint128.hpp"
#endif
