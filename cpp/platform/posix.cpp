// Linux and macOS: platform.hpp.
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "evenbins/platform.hpp"

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>

#include "x86.hpp"
#endif

namespace evenbins::platform {

void* map_memory(uint64_t bytes) noexcept {
  void* const start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return start == MAP_FAILED ? nullptr : start;
}
void unmap_memory(void* start, uint64_t bytes) noexcept { ::munmap(start, bytes); }
void advise_huge_pages([[maybe_unused]] void* start, [[maybe_unused]] uint64_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  ::madvise(start, bytes, MADV_HUGEPAGE);
#endif
}
void drop_pages(void* start, uint64_t bytes) noexcept {
#if defined(__linux__)
  ::madvise(start, bytes, MADV_DONTNEED);
#else  // elsewhere that advice need not empty them: new pages in their place
  if (::mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    std::memset(start, 0, bytes);
#endif
}

int open_file(const char* path, int flags, int mode) noexcept { return ::open(path, flags | O_CLOEXEC, mode); }
void close_file(int file) noexcept { ::close(file); }
int64_t file_size(int file) noexcept {
  struct stat status;
  return ::fstat(file, &status) == 0 ? static_cast<int64_t>(status.st_size) : -1;
}
int64_t read_at(int file, uint64_t offset, void* out, size_t n) noexcept {
  return ::pread(file, out, n, static_cast<off_t>(offset));
}
int64_t read_cached_at([[maybe_unused]] int file, [[maybe_unused]] uint64_t offset, [[maybe_unused]] void* out,
                       [[maybe_unused]] size_t n) noexcept {
#if defined(RWF_NOWAIT)
  const iovec piece{out, n};
  return ::preadv2(file, &piece, 1, static_cast<off_t>(offset), RWF_NOWAIT);
#else
  errno = ENOSYS;
  return -1;
#endif
}
int64_t write_at(int file, uint64_t offset, const void* data, size_t n) noexcept {
  return ::pwrite(file, data, n, static_cast<off_t>(offset));
}
int64_t write_on(int file, const void* data, size_t n) noexcept { return ::write(file, data, n); }
int resize_file(int file, uint64_t bytes) noexcept { return ::ftruncate(file, static_cast<off_t>(bytes)); }
int flush_file(int file) noexcept {
#if defined(F_FULLFSYNC)
  // Network shares and some other file systems have no such call.
  return ::fcntl(file, F_FULLFSYNC) == -1 ? ::fsync(file) : 0;
#else
  return ::fdatasync(file);
#endif
}
void request_pages([[maybe_unused]] int file, [[maybe_unused]] uint64_t offset, [[maybe_unused]] size_t n) noexcept {
#if defined(POSIX_FADV_WILLNEED)
  ::posix_fadvise(file, static_cast<off_t>(offset), static_cast<off_t>(n), POSIX_FADV_WILLNEED);
#endif
}
int lock_file(int file, bool exclusive) noexcept { return ::flock(file, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB); }
int unlock_file(int file) noexcept { return ::flock(file, LOCK_UN); }

int process_id() noexcept { return ::getpid(); }
bool at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
  return ::pthread_atfork(before, in_parent, in_child) == 0;
}

#if defined(__linux__)
static_assert(sizeof(cpu_set_t) <= sizeof(CoreSet));
bool read_cores(CoreSet& cores) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return false;  // there are more cores than the set can hold
  std::memcpy(cores.bits.data(), &set, sizeof set);
  return true;
}
bool set_cores(Thread thread, const CoreSet& cores) noexcept {
  const auto* const set = reinterpret_cast<const cpu_set_t*>(cores.bits.data());
  return ::pthread_setaffinity_np(thread, sizeof *set, set) == 0;
}
void name_thread(Thread thread, const char* name) noexcept { ::pthread_setname_np(thread, name); }
#else
bool read_cores(CoreSet&) noexcept { return false; }
bool set_cores(Thread, const CoreSet&) noexcept { return false; }
void name_thread(Thread, const char*) noexcept {}
#endif

std::chrono::nanoseconds thread_time() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

BlockSignals::BlockSignals() noexcept {
  sigset_t all, before;
  static_assert(sizeof before <= sizeof before_);
  sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&all, own);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::memcpy(before_, &before, sizeof before);
}
BlockSignals::~BlockSignals() {
  sigset_t before;
  std::memcpy(&before, before_, sizeof before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Processor processor() noexcept {
#if defined(__x86_64__)
  const auto ask = [](uint32_t leaf) {
    CpuidWords words;
    __cpuid_count(leaf, 0, words.a, words.b, words.c, words.d);
    return words;
  };
  return processor_by(ask, [] {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t{high} << 32 | low;
  });
#else
  return {};
#endif
}

}  // namespace evenbins::platform
