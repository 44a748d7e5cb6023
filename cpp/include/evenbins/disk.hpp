// One file by its descriptor: positional reads and writes, complete or an error that names the file.
//
// Every change of a paged table goes through here, so a test can record the changes in their order (`Tape`), replay
// every prefix of them as a crash would leave it, or let the k-th of them fail.
//
// `read` waits for the disk. `read_cached` does not: it succeeds only with bytes that the system has in its page cache
// (preadv2 with RWF_NOWAIT: Linux, most file systems). `knows_cache` is false where that does not exist, which is
// found out once, by the constructor: ENOSYS (an old kernel, another system), EOPNOTSUPP (the file system), EPERM or
// EINVAL (a sandbox).
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "evenbins/platform.hpp"

namespace evenbins {

class IoError : public std::runtime_error {
 public:
  IoError(int error, std::string path) : std::runtime_error(std::strerror(error)), code(error), file(std::move(path)) {}
  int code;
  std::string file;
};

// The id of this process without a system call (which costs several look-ups): a handler of fork sets it in the child.
int process_id();

// An open file descriptor and the duty to close it.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  void close() {
    if (number_ >= 0) platform::close_file(release());
  }

 private:
  int number_;
};

// The changes made to files, one after the other; for tests.
struct Tape {
  struct Step {
    uint32_t file;
    char what;  // 'w' write, 's' sync, 't' truncate to `offset`, 'a' a group was acknowledged
    uint64_t offset;
    std::string data;
  };
  bool on = false;
  std::vector<Step> steps;
  int64_t fail_after = -1;  // so many changes succeed, the next fails, once; −1: none
  int fail_code = 0;

  bool fails() {
    if (fail_after < 0) return false;
    return fail_after-- == 0;
  }
};

class Disk {
 public:
  Disk(Descriptor& file, std::string path, Tape* tape, uint32_t number)
      : descriptor_(file.release()), path_(std::move(path)), tape_(tape), number_(number) {
    char byte;
    knows_cache_ =
        is_open() && (platform::read_cached_at(descriptor_, 0, &byte, 1) >= 0 || errno == EAGAIN || errno == EINTR);
  }
  ~Disk() { close(); }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  void close() {
    if (descriptor_ >= 0) platform::close_file(descriptor_);
    descriptor_ = -1;
  }

  uint64_t size() const {
    const int64_t bytes = platform::file_size(descriptor_);
    if (bytes < 0) throw IoError(errno, path_);
    return static_cast<uint64_t>(bytes);
  }

  // Returns the number of bytes read: fewer than n at the end of the file only.
  size_t read(uint64_t offset, void* out, size_t n) const {
    auto* p = static_cast<char*>(out);
    size_t done = 0;
    while (done < n) {
      const int64_t got = platform::read_at(descriptor_, offset + done, p + done, n - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError(errno, path_);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  // Reads n bytes if the system has all of them in its cache. False: it has not, or the read has to be made by `read`
  // to know what is wrong.
  bool read_cached(uint64_t offset, void* out, size_t n) const {
    return platform::read_cached_at(descriptor_, offset, out, n) == static_cast<int64_t>(n);
  }
  bool knows_cache() const { return knows_cache_; }
  void set_knows_cache(bool known) { knows_cache_ = known; }  // for tests

  // Asks the system to fetch bytes into its cache, without waiting for them.
  void request(uint64_t offset, size_t n) const { platform::request_pages(descriptor_, offset, n); }

  void write(uint64_t offset, const void* data, size_t n) {
    const auto* p = static_cast<const char*>(data);
    if (tape_->on) tape_->steps.push_back({number_, 'w', offset, std::string(p, n)});
    if (tape_->fails()) {
      put(offset, p, n / 2);  // as a full disk does
      throw IoError(tape_->fail_code, path_);
    }
    put(offset, p, n);
  }

  void truncate(uint64_t size) {
    if (tape_->on) tape_->steps.push_back({number_, 't', size, {}});
    if (tape_->fails()) throw IoError(tape_->fail_code, path_);
    while (platform::resize_file(descriptor_, size) != 0)
      if (errno != EINTR) throw IoError(errno, path_);
  }

  void sync() {
    if (tape_->on) tape_->steps.push_back({number_, 's', 0, {}});
    if (tape_->fails()) throw IoError(tape_->fail_code, path_);
    if (platform::flush_file(descriptor_) != 0) throw IoError(errno, path_);
  }

 private:
  void put(uint64_t offset, const char* p, size_t n) {
    while (n > 0) {
      const int64_t put = platform::write_at(descriptor_, offset, p, std::min<size_t>(n, 1 << 30));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw IoError(errno, path_);
      p += put;
      offset += static_cast<uint64_t>(put);
      n -= static_cast<size_t>(put);
    }
  }

  std::atomic<int> descriptor_;  // others may ask whether it is open while one closes it
  std::string path_;
  Tape* tape_;
  uint32_t number_;
  bool knows_cache_ = false;
};

}  // namespace evenbins
