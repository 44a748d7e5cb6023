// AVX-512 with VBMI: byte permutations for the lines of fingerprint and window filters. All other loops are those of
// avx512.cpp.
#define EVENBINS_KERNEL_NAMESPACE avx512vbmi_kernel
#include "fingerprint.hpp"
#include "window.hpp"

namespace evenbins::avx512vbmi_kernel {

const FingerprintLoops& fingerprint_loops(uint32_t remainder_bits) { return fingerprint(remainder_bits); }
const WindowLoops& window_loops(uint32_t slot_bits) { return window(slot_bits); }

}  // namespace evenbins::avx512vbmi_kernel
