// Which kernels this build has, which this machine can run, and which one is in force.
//
// Chosen at run time, since one wheel must serve every machine. Not tried: gather instructions for
// the standard filter, whose positions are computed by vector and read one by one, behind prefetches that
// already keep the memory busy. A build for ThreadSanitizer runs the generic kernel only (shared_words.hpp).
#include <atomic>
#include <cstring>
#include <vector>

#include "evenbins/kernel.hpp"
#include "evenbins/platform.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins {

namespace generic_kernel {
extern const Kernel table;
}
#if defined(__x86_64__)
namespace avx2_kernel {
extern const Kernel table;
}
namespace avx512_kernel {
extern const Kernel table;
}
namespace avx512vbmi_kernel {
const FingerprintLoops& fingerprint_loops(uint32_t remainder_bits);
const WindowLoops& window_loops(uint32_t slot_bits);
}  // namespace avx512vbmi_kernel
#elif defined(__aarch64__)
namespace neon_kernel {
extern const Kernel table;
}
#endif

namespace {

#if defined(__x86_64__) && !EVENBINS_THREAD_SANITIZER
const Kernel& with_vbmi() {
  static const Kernel table = [] {
    Kernel kernel = avx512_kernel::table;
    kernel.name = "avx512vbmi";
    kernel.fingerprint = avx512vbmi_kernel::fingerprint_loops;
    kernel.window = avx512vbmi_kernel::window_loops;
    return kernel;
  }();
  return table;
}
#endif

std::vector<const Kernel*> runnable() {
  std::vector<const Kernel*> found = {&generic_kernel::table};
#if EVENBINS_THREAD_SANITIZER
#elif defined(__x86_64__)
  const platform::Processor own = platform::processor();
  if (own.avx2) found.push_back(&avx2_kernel::table);
  if (own.avx512) found.push_back(&avx512_kernel::table);
  if (own.avx512vbmi) found.push_back(&with_vbmi());
#elif defined(__aarch64__)
  found.push_back(&neon_kernel::table);
#endif
  return found;
}

const std::vector<const Kernel*>& all() {
  static const std::vector<const Kernel*> found = runnable();
  return found;
}

std::atomic<const Kernel*> in_force = nullptr;

}  // namespace

std::span<const Kernel* const> kernels() { return all(); }

const Kernel& kernel() {
  const Kernel* k = in_force.load(std::memory_order_relaxed);
  if (k == nullptr) in_force.store(k = all().back(), std::memory_order_relaxed);
  return *k;
}

bool use_kernel(const char* name) {
  for (const Kernel* k : all()) {
    if (std::strcmp(k->name, name) == 0) {
      in_force.store(k, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

}  // namespace evenbins
