// What operating systems do differently, and nothing else: cpp/platform/posix.cpp (Linux, macOS) and windows.cpp.
//
// Files are the numbers that Python has for them: descriptors of the C library, also on Windows. Functions that return
// int or int64_t do as POSIX does: -1 and errno if they fail.
//
//                      Linux                     macOS                Windows
//     durable          fdatasync                 F_FULLFSYNC          FlushFileBuffers
//     cached reads     preadv2, RWF_NOWAIT       none                 none
//     locks            flock                     flock                LockFileEx, of a byte behind every file's end
//     huge pages       madvise                   none                 none
//     affinity         followed                  none                 counted
//     fork             pthread_atfork            pthread_atfork       there is none
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace evenbins::platform {

// ---- memory: whole pages that begin as zeros -----------------------------------------------------------------
void* map_memory(uint64_t bytes) noexcept;  // nullptr if there is not enough
void unmap_memory(void* start, uint64_t bytes) noexcept;
void advise_huge_pages(void* start, uint64_t bytes) noexcept;
void drop_pages(void* start, uint64_t bytes) noexcept;  // returned to the system: zeros afterwards

// ---- files -----------------------------------------------------------------------------------------------------
int open_file(const char* path, int flags, int mode) noexcept;  // not inherited by programs that the process starts
void close_file(int file) noexcept;
int64_t file_size(int file) noexcept;
int64_t read_at(int file, uint64_t offset, void* out, size_t n) noexcept;         // how many; 0: the end of the file
int64_t read_cached_at(int file, uint64_t offset, void* out, size_t n) noexcept;  // without waiting for the disk
int64_t write_at(int file, uint64_t offset, const void* data, size_t n) noexcept;
int64_t write_on(int file, const void* data, size_t n) noexcept;  // where the last write ended
int resize_file(int file, uint64_t bytes) noexcept;
int flush_file(int file) noexcept;  // contents and size are on the disk afterwards
void request_pages(int file, uint64_t offset, size_t n) noexcept;
// By this process, for as long as the file is open, against others who ask for it: many shared locks, or an exclusive
// one. -1 and EWOULDBLOCK: somebody else has it.
int lock_file(int file, bool exclusive) noexcept;
int unlock_file(int file) noexcept;

// ---- processes and threads -------------------------------------------------------------------------------------
int process_id() noexcept;
// Calls the functions around every fork(); false if they could not be registered.
bool at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept;

using Thread = std::thread::native_handle_type;
struct CoreSet {  // where a thread may run
  std::array<uint64_t, 16> bits{};
  bool operator==(const CoreSet&) const = default;
};
bool read_cores(CoreSet& cores) noexcept;  // of the calling thread; false if they are not known
bool set_cores(Thread thread, const CoreSet& cores) noexcept;
void name_thread(Thread thread, const char* name) noexcept;
std::chrono::nanoseconds thread_time() noexcept;  // for which the calling thread has had a core

// Blocks signals in this thread, and so in the threads that it starts: Python's handlers run where the user expects
// them. Not those that a thread raises by what it does, which would end the process without a word.
class BlockSignals {
 public:
  BlockSignals() noexcept;
  ~BlockSignals();
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  alignas(8) unsigned char before_[128];
};

// ---- the processor ---------------------------------------------------------------------------------------------
// All false where the instruction set is another one. avx2: with bmi2; avx512: F, DQ, BW and VL; deposits_slowly: pdep by
// microcode, a hundred times slower than elsewhere.
struct Processor {
  bool avx2 = false, avx512 = false, avx512vbmi = false, deposits_slowly = false;
};
Processor processor() noexcept;

}  // namespace evenbins::platform
