// CUDA's built-ins for a compiler of the CPU: the threads of a block are fibers of one thread, which take turns at each
// barrier, and shared memory is static. Blocks run one after the other. It finds wrong results; it finds no races.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ thread_local
#define __align__(n) __attribute__((aligned(n)))

struct Index {
  uint32_t x = 0, y = 0, z = 0;
};
struct uint4 {
  uint32_t x, y, z, w;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

struct Barrier {
  uint32_t live = 0, arrived = 0;
  uint64_t turn = 0;
  void release() {
    arrived = 0;
    ++turn;
  }
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool finished = false;
};

inline constexpr size_t kStack = 64 << 10;
inline std::vector<Fiber> fibers;
inline std::vector<Barrier> warps;
inline Barrier block;
inline uint32_t current, running;
inline ucontext_t scheduler;
inline uint64_t exchanged[2048];  // a slot for each thread

inline void to_next() {  // the next fiber that has not finished; back to the scheduler if there is none
  const uint32_t from = current;
  if (running == 0) return;
  do current = (current + 1) % fibers.size();
  while (fibers[current].finished);
  threadIdx.x = current;
  if (current != from) swapcontext(&fibers[from].context, &fibers[current].context);
}

inline void wait_at(Barrier& barrier) {
  const uint64_t turn = barrier.turn;
  if (++barrier.arrived == barrier.live)
    barrier.release();
  else
    while (barrier.turn == turn) to_next();
}
inline Barrier& own_warp() { return warps[current / 32]; }

inline void leave(Barrier& barrier) {
  if (--barrier.live > 0 && barrier.arrived == barrier.live) barrier.release();
}

template <typename Call>
void fiber_main(uint32_t low, uint32_t high) {
  (*reinterpret_cast<Call*>(static_cast<uintptr_t>(high) << 32 | low))();
  fibers[current].finished = true;
  --running;
  leave(own_warp());
  leave(block);
  if (running == 0) setcontext(&scheduler);
  to_next();
}

template <typename Call>
void run(uint32_t grid_x, uint32_t grid_y, uint32_t threads, Call call) {
  gridDim = {grid_x, grid_y, 1};
  blockDim = {threads, 1, 1};
  fibers.resize(threads);
  for (blockIdx.y = 0; blockIdx.y < grid_y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < grid_x; ++blockIdx.x) {
      warps.assign((threads + 31) / 32, {});
      for (uint32_t t = 0; t < threads; ++t) ++warps[t / 32].live;
      block = {threads, 0, 0};
      running = threads;
      const auto address = reinterpret_cast<uintptr_t>(&call);
      for (Fiber& fiber : fibers) {
        if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<char[]>(kStack);
        fiber.finished = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = kStack;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, reinterpret_cast<void (*)()>(&fiber_main<Call>), 2, static_cast<uint32_t>(address),
                    static_cast<uint32_t>(address >> 32));
      }
      current = 0;
      threadIdx.x = 0;
      swapcontext(&scheduler, &fibers[0].context);
    }
}

template <typename T>
T exchange(T value, uint32_t lane) {  // what that lane of the warp has
  const uint32_t base = current / 32 * 32;
  exchanged[current] = 0;
  std::memcpy(exchanged + current, &value, sizeof value);
  wait_at(own_warp());
  std::memcpy(&value, exchanged + base + lane % 32, sizeof value);
  wait_at(own_warp());
  return value;
}

}  // namespace emulator

inline void __syncthreads() { emulator::wait_at(emulator::block); }
inline void __syncwarp() { emulator::wait_at(emulator::own_warp()); }
template <typename T>
T __shfl_sync(uint32_t, T value, uint32_t lane) {
  return emulator::exchange(value, lane);
}
template <typename T>
T __shfl_up_sync(uint32_t, T value, uint32_t by) {
  const uint32_t lane = emulator::current % 32;
  return emulator::exchange(value, lane >= by ? lane - by : lane);
}
inline uint32_t __ballot_sync(uint32_t, bool vote) {
  emulator::exchanged[emulator::current] = vote;
  emulator::wait_at(emulator::own_warp());
  uint32_t votes = 0;
  for (uint32_t lane = 0; lane < 32; ++lane)
    votes |= static_cast<uint32_t>(emulator::exchanged[emulator::current / 32 * 32 + lane] != 0) << lane;
  emulator::wait_at(emulator::own_warp());
  return votes;
}
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
void __stcs(T* p, T value) {
  *p = value;
}
template <typename T>
T atomicAdd(T* p, T value) {
  return std::exchange(*p, *p + value);
}
template <typename T>
T atomicOr(T* p, T value) {
  return std::exchange(*p, *p | value);
}
template <typename T>
T atomicMin(T* p, T value) {
  return std::exchange(*p, std::min(*p, value));
}
template <typename T>
T atomicCAS(T* p, T expected, T value) {
  const T before = *p;
  if (before == expected) *p = value;
  return before;
}
using std::min;
