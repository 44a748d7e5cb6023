// The kernels of cpp/cuda as functions of the CPU, by the names that evenbins.cuda asks NVRTC for.
#include "cuda_shim.hpp"

#include <string_view>

#include "balanced.cuh"
#include "countmin.cuh"
#include "fingerprint.cuh"
#include "measure.cuh"
#include "partition.cuh"
#include "standard.cuh"

namespace evenbins::gpu {

thread_local __attribute__((aligned(16))) unsigned char shared_memory[256 << 10];

namespace {

template <typename T>
T argument(uint64_t word) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<T>(word);
  else
    return static_cast<T>(word);
}

struct Launch {
  uint32_t grid_x, grid_y, threads;
  const uint64_t* words;  // one for each argument
  size_t count;
};

template <typename... A, size_t... I>
bool call(void (*kernel)(A...), const Launch& launch, std::index_sequence<I...>) {
  if (launch.count != sizeof...(A)) return false;
  emulator::run(launch.grid_x, launch.grid_y, launch.threads,
                [&] { kernel(argument<A>(launch.words[I])...); });
  return true;
}
template <typename... A>
bool call(void (*kernel)(A...), const Launch& launch) {
  return call(kernel, launch, std::index_sequence_for<A...>());
}

}  // namespace
}  // namespace evenbins::gpu

// 0: done; 1: no such kernel here; 2: another number of arguments.
extern "C" int emulate(const char* name, uint32_t grid_x, uint32_t grid_y, uint32_t threads, const uint64_t* words,
                       size_t count) {
  using namespace evenbins::gpu;
  namespace evenbins = ::evenbins;  // some names begin with it
  const Launch launch{grid_x, grid_y, threads, words, count};
#define KERNEL(...) \
  if (std::string_view(name) == #__VA_ARGS__) return call(__VA_ARGS__, launch) ? 0 : 2;
#include "kernels.inc"
#undef KERNEL
  return 1;
}
