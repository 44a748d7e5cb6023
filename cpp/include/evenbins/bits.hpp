// The memory of a structure: 64-bit words that start out zero, on a cache-line boundary at least.
//
// Owned memory comes straight from the system: zero pages cost nothing until they are touched, so a
// filter of many GiB exists at once, and large ones ask for huge pages (a random probe into 4 KiB pages
// misses the TLB as often as the cache). Borrowed memory belongs to someone else, a mapped file say, and
// is read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "evenbins/platform.hpp"
#include "evenbins/shared_words.hpp"

namespace evenbins {

class AllocationError : public std::bad_alloc {
 public:
  explicit AllocationError(uint64_t bytes)
      : message_("cannot allocate " + std::to_string(bytes) + " bytes (about " +
                 (bytes >> 30 == 0 ? std::to_string((bytes >> 20) + 1) + " MiB"
                                   : std::to_string((bytes >> 30) + 1) + " GiB") +
                 "): plan for fewer keys or fewer bits per key") {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

class Bits {
 public:
  static Bits zeroed(uint64_t bytes) {
    constexpr uint64_t kHugePage = uint64_t{2} << 20;
    const uint64_t slack = bytes >= kHugePage ? kHugePage : 0;
    if (bytes > (uint64_t{1} << 56)) throw AllocationError(bytes);
    Bits bits;
    bits.map_bytes_ = bytes + slack;
    bits.map_ = platform::map_memory(bits.map_bytes_);
    if (bits.map_ == nullptr) throw AllocationError(bytes);
    auto address = reinterpret_cast<uintptr_t>(bits.map_);
    if (slack != 0) {
      address = (address + kHugePage - 1) / kHugePage * kHugePage;
      platform::advise_huge_pages(reinterpret_cast<void*>(address), bytes);
    }
    bits.words_ = reinterpret_cast<uint64_t*>(address);
    bits.bytes_ = bytes;
    return bits;
  }

  // `owner` keeps the memory alive. It must be 8-byte aligned.
  static Bits borrowed(const void* data, uint64_t bytes, std::shared_ptr<void> owner) {
    Bits bits;
    bits.words_ = static_cast<uint64_t*>(const_cast<void*>(data));
    bits.bytes_ = bytes;
    bits.owner_ = std::move(owner);
    bits.read_only_ = true;
    return bits;
  }

  Bits(Bits&& other) noexcept { swap(other); }  // which is empty then
  Bits& operator=(Bits&& other) noexcept {
    swap(other);
    return *this;
  }
  Bits(const Bits&) = delete;
  Bits& operator=(const Bits&) = delete;
  ~Bits() {
    if (map_ != nullptr) platform::unmap_memory(map_, map_bytes_);
  }

  uint64_t* words() { return words_; }
  const uint64_t* words() const { return words_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t size() const { return bytes_ / 8; }
  bool read_only() const { return read_only_; }

  Bits copy() const {
    Bits fresh = zeroed(bytes_);
    std::memcpy(fresh.words_, words_, bytes_);
    return fresh;
  }
  // Returns the pages between two words to the system, those that lie in between as a whole: they are zero afterwards.
  void release(uint64_t first, uint64_t end) {
    constexpr uintptr_t kPage = uintptr_t{1} << 16;  // or any smaller power of two
    const uintptr_t from = (reinterpret_cast<uintptr_t>(words_ + first) + kPage - 1) / kPage * kPage;
    const uintptr_t to = reinterpret_cast<uintptr_t>(words_ + end) / kPage * kPage;
    if (map_ != nullptr && from < to) platform::drop_pages(reinterpret_cast<void*>(from), to - from);
  }
  void clear() {
    for (uint64_t i = 0, n = size(); i < n; ++i) store_word(words_ + i, 0);
  }
  void merge(const Bits& other) { merge(other, 0, size()); }
  void merge(const Bits& other, uint64_t first, uint64_t end) {
    for (uint64_t i = first; i < end; ++i) store_word(words_ + i, words_[i] | other.words_[i]);
  }
  void intersect(const Bits& other) {
    for (uint64_t i = 0, n = size(); i < n; ++i) store_word(words_ + i, words_[i] & other.words_[i]);
  }
  // Whether every bit is set in a memory of the same size; whether no bit is set. Both stop at the first that decides.
  bool is_subset_of(const Bits& other) const {
    for (uint64_t i = 0, n = size(); i < n; ++i) {
      if ((words_[i] & ~other.words_[i]) != 0) return false;
    }
    return true;
  }
  bool none() const {
    for (uint64_t i = 0, n = size(); i < n; ++i) {
      if (words_[i] != 0) return false;
    }
    return true;
  }
  bool operator==(const Bits& other) const {
    return bytes_ == other.bytes_ && std::memcmp(words_, other.words_, bytes_) == 0;
  }

 private:
  Bits() = default;
  void swap(Bits& other) noexcept {
    std::swap(words_, other.words_);
    std::swap(bytes_, other.bytes_);
    std::swap(map_, other.map_);
    std::swap(map_bytes_, other.map_bytes_);
    std::swap(owner_, other.owner_);
    std::swap(read_only_, other.read_only_);
  }

  uint64_t* words_ = nullptr;
  uint64_t bytes_ = 0;
  void* map_ = nullptr;
  uint64_t map_bytes_ = 0;
  std::shared_ptr<void> owner_;
  bool read_only_ = false;
};

}  // namespace evenbins
