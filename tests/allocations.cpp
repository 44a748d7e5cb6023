// Makes the n-th memory allocation of the core fail: built by tests/allocations.py and loaded with LD_PRELOAD.
//
// Replaces operator new in all its forms, and mmap (for evenbins::Bits, which maps anonymous memory). Only calls from
// the extension module `_core` and from the C++ library on its behalf count, and only while armed: Python and NumPy
// allocate with malloc, which is left alone. Threads share one count. Memory comes from malloc, so that the C++
// library's operator delete frees it.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<bool> armed{false}, always{false};
std::atomic<uint64_t> fail_at{0}, seen{0}, failed{0};

bool comes_from(const void* caller, bool library_too) {
  Dl_info info;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  return std::strstr(info.dli_fname, "/_core.") != nullptr ||
         (library_too && std::strstr(info.dli_fname, "/libstdc++.") != nullptr);
}

bool must_fail(const void* caller, bool library_too) {
  if (!armed.load() || !comes_from(caller, library_too)) return false;
  const uint64_t number = ++seen;
  if (number != fail_at.load() && !(always.load() && number > fail_at.load())) return false;
  ++failed;
  return true;
}

void* allocate(size_t size, size_t alignment, const void* caller) {
  if (must_fail(caller, true)) return nullptr;
  if (size == 0) size = 1;
  return alignment == 0 ? std::malloc(size)
                        : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

extern "C" {
// The n-th allocation from now on fails, from 1; all after it too if `from_then_on`. n = 0: none fails, none is
// counted.
void allocations_fail_at(uint64_t n, int from_then_on) {
  armed = false;
  fail_at = n;
  always = from_then_on != 0;
  seen = 0;
  failed = 0;
  armed = n != 0;
}
void allocations_disarm() { armed = false; }
// Allocations since they were armed, and how many of them failed.
uint64_t allocations_count() { return seen; }
uint64_t allocations_failed() { return failed; }

void* mmap(void* address, size_t size, int protection, int flags, int descriptor, off_t offset) {
  if ((flags & MAP_ANONYMOUS) != 0 && must_fail(__builtin_return_address(0), false)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
}
}

#define CALLER __builtin_return_address(0)
void* operator new(size_t n) { return or_throw(allocate(n, 0, CALLER)); }
void* operator new[](size_t n) { return or_throw(allocate(n, 0, CALLER)); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0, CALLER); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0, CALLER); }
void* operator new(size_t n, std::align_val_t a) { return or_throw(allocate(n, static_cast<size_t>(a), CALLER)); }
void* operator new[](size_t n, std::align_val_t a) { return or_throw(allocate(n, static_cast<size_t>(a), CALLER)); }
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, static_cast<size_t>(a), CALLER);
}
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, static_cast<size_t>(a), CALLER);
}
