// Windows: platform.hpp.
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <fcntl.h>
#include <intrin.h>
#include <io.h>
#include <process.h>
#include <windows.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>

#include "evenbins/platform.hpp"
#include "x86.hpp"

namespace evenbins::platform {
namespace {

HANDLE handle_of(int file) { return reinterpret_cast<HANDLE>(_get_osfhandle(file)); }

int failed() {
  switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND: errno = ENOENT; break;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS: errno = EEXIST; break;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION: errno = EACCES; break;
    case ERROR_LOCK_VIOLATION: errno = EWOULDBLOCK; break;
    case ERROR_INVALID_HANDLE: errno = EBADF; break;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL: errno = ENOSPC; break;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY: errno = ENOMEM; break;
    default: errno = EIO;
  }
  return -1;
}

OVERLAPPED place(uint64_t offset) {
  OVERLAPPED at{};
  at.Offset = static_cast<DWORD>(offset);
  at.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return at;
}

DWORD at_most_a_gigabyte(size_t n) { return static_cast<DWORD>(std::min<size_t>(n, size_t{1} << 30)); }

// Locks keep others from reading and writing the bytes that they cover, so they cover one that no file has.
constexpr uint64_t kLocked = uint64_t{1} << 62;

#if defined(_M_X64) || defined(__x86_64__)
#if defined(__GNUC__) || defined(__clang__)
__attribute__((target("xsave")))
#endif
uint64_t enabled_states() {
  return _xgetbv(0);
}
#endif

}  // namespace

void* map_memory(uint64_t bytes) noexcept {
  return VirtualAlloc(nullptr, static_cast<SIZE_T>(std::max<uint64_t>(bytes, 1)), MEM_RESERVE | MEM_COMMIT,
                      PAGE_READWRITE);
}
void unmap_memory(void* start, uint64_t) noexcept { VirtualFree(start, 0, MEM_RELEASE); }
void advise_huge_pages(void*, uint64_t) noexcept {}
void drop_pages(void* start, uint64_t bytes) noexcept {
  if (!VirtualFree(start, static_cast<SIZE_T>(bytes), MEM_DECOMMIT) ||
      VirtualAlloc(start, static_cast<SIZE_T>(bytes), MEM_COMMIT, PAGE_READWRITE) == nullptr)
    std::abort();  // the memory is gone
}

// As _open, but others may rename or delete the file meanwhile, as elsewhere.
int open_file(const char* path, int flags, int mode) noexcept {
  wchar_t name[32768];
  if (MultiByteToWideChar(CP_UTF8, 0, path, -1, name, 32768) == 0) {
    errno = ENOENT;
    return -1;
  }
  const DWORD access = (flags & _O_RDWR)     ? GENERIC_READ | GENERIC_WRITE
                       : (flags & _O_WRONLY) ? GENERIC_WRITE
                                             : GENERIC_READ;
  const DWORD make = !(flags & _O_CREAT)  ? ((flags & _O_TRUNC) ? TRUNCATE_EXISTING : OPEN_EXISTING)
                     : (flags & _O_EXCL)  ? CREATE_NEW
                     : (flags & _O_TRUNC) ? CREATE_ALWAYS
                                          : OPEN_ALWAYS;
  const DWORD kind = (flags & _O_CREAT) != 0 && (mode & 0200) == 0 ? FILE_ATTRIBUTE_READONLY : FILE_ATTRIBUTE_NORMAL;
  const HANDLE handle =
      CreateFileW(name, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr, make, kind, nullptr);
  if (handle == INVALID_HANDLE_VALUE) return failed();
  const int file = _open_osfhandle(reinterpret_cast<intptr_t>(handle), flags & (_O_RDWR | _O_WRONLY | _O_APPEND));
  if (file < 0) CloseHandle(handle);
  return file;
}
void close_file(int file) noexcept { _close(file); }
int64_t file_size(int file) noexcept {
  LARGE_INTEGER size;
  return GetFileSizeEx(handle_of(file), &size) ? size.QuadPart : failed();
}
int64_t read_at(int file, uint64_t offset, void* out, size_t n) noexcept {
  OVERLAPPED at = place(offset);
  DWORD done = 0;
  if (ReadFile(handle_of(file), out, at_most_a_gigabyte(n), &done, &at)) return done;
  return GetLastError() == ERROR_HANDLE_EOF ? 0 : failed();
}
int64_t read_cached_at(int, uint64_t, void*, size_t) noexcept {
  errno = ENOSYS;
  return -1;
}
int64_t write_at(int file, uint64_t offset, const void* data, size_t n) noexcept {
  OVERLAPPED at = place(offset);
  DWORD done = 0;
  return WriteFile(handle_of(file), data, at_most_a_gigabyte(n), &done, &at) ? done : failed();
}
int64_t write_on(int file, const void* data, size_t n) noexcept {
  DWORD done = 0;
  return WriteFile(handle_of(file), data, at_most_a_gigabyte(n), &done, nullptr) ? done : failed();
}
int resize_file(int file, uint64_t bytes) noexcept {
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(bytes);
  return SetFileInformationByHandle(handle_of(file), FileEndOfFileInfo, &end, sizeof end) ? 0 : failed();
}
int flush_file(int file) noexcept { return FlushFileBuffers(handle_of(file)) ? 0 : failed(); }
void request_pages(int, uint64_t, size_t) noexcept {}
int lock_file(int file, bool exclusive) noexcept {
  OVERLAPPED at = place(kLocked);
  const DWORD how = LOCKFILE_FAIL_IMMEDIATELY | (exclusive ? LOCKFILE_EXCLUSIVE_LOCK : 0);
  return LockFileEx(handle_of(file), how, 0, 1, 0, &at) ? 0 : failed();
}
int unlock_file(int file) noexcept {
  OVERLAPPED at = place(kLocked);
  return UnlockFileEx(handle_of(file), 0, 1, 0, &at) ? 0 : failed();
}

int process_id() noexcept { return _getpid(); }
bool at_fork(void (*)(), void (*)(), void (*)()) noexcept { return true; }

bool read_cores(CoreSet& cores) noexcept {
  DWORD_PTR own = 0, all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all) || own == 0) return false;  // several groups of cores
  cores.bits[0] = own;
  return true;
}
bool set_cores(Thread, const CoreSet&) noexcept { return true; }  // threads have the process's cores
void name_thread(Thread, const char*) noexcept {}

std::chrono::nanoseconds thread_time() noexcept {
  FILETIME begun, ended, kernel, user;
  if (!GetThreadTimes(GetCurrentThread(), &begun, &ended, &kernel, &user)) return {};
  const auto ticks = [](const FILETIME& t) { return static_cast<int64_t>(t.dwHighDateTime) << 32 | t.dwLowDateTime; };
  return std::chrono::nanoseconds(100 * (ticks(kernel) + ticks(user)));
}

BlockSignals::BlockSignals() noexcept { before_[0] = 0; }  // Ctrl-C has a thread of its own
BlockSignals::~BlockSignals() = default;

Processor processor() noexcept {
#if defined(_M_X64) || defined(__x86_64__)
  const auto ask = [](uint32_t leaf) {
    int words[4];
    __cpuidex(words, static_cast<int>(leaf), 0);
    const auto word = [&](int i) { return static_cast<uint32_t>(words[i]); };
    return CpuidWords{word(0), word(1), word(2), word(3)};
  };
  return processor_by(ask, enabled_states);
#else
  return {};
#endif
}

}  // namespace evenbins::platform
