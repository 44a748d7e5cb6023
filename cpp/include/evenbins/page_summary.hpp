// What lies in RAM of a table whose buckets lie in a file: which page, if any, may hold a key (kirsch, 4.7.2).
//
//     digest ──B0──▶ no: absent, nothing is read
//              └───▶ yes ──list──▶ on it: the page of that level      (a few keys in a thousand: an exact list in place
//                            └───▶ not:   the page of level 1          of the thesis' filters B1, B2, …: its "CAM")
//
// B0 is a blocked Bloom filter of all keys. Its blocks are `blocks_per_page` for each page of level 1, found by the
// same top bits of the digest: ⌊mulhi(x, P·r)/r⌋ = mulhi(x, P). So all that a page's keys set lies in r blocks in a
// row, and a deletion, which has the page at hand, clears these blocks and sets them anew (`refresh`). Deletions then
// cost no accuracy and no memory, where the thesis needs counters (4.10.2) or a rebuild of everything (4.10.1).
//
// The list holds whole digests with their level, as a multiset: two keys of one digest are two entries. So it names
// every level that holds a key, and a key that is not named lies in level 1 or nowhere. A present key therefore
// costs one read, unless its digest is another key's too. Its slots follow the digest's order, so the entries of one
// page are found without a search.
//
// Invariant: a key that is in the table is never answered "absent". What a failed write leaves behind is bits too
// many, never too few.
//
// Considered, not built: counters in B0 (4.10.2). Four bits for each of 15.6 a key are twice the 4 bytes it may take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/blocked_view.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/lanes.hpp"
#include "evenbins/spec.hpp"

namespace evenbins {

inline constexpr uint32_t kMaxCodes = 16;  // levels and overflow pages

// Where a key may be: codes in the order in which to look; 1 is level 1, and so on; overflow pages follow the levels.
struct Candidates {
  uint8_t codes[kMaxCodes];
  uint32_t count = 0;
  void add(uint8_t code) {
    for (uint32_t i = 0; i < count; ++i)
      if (codes[i] == code) return;
    if (count < kMaxCodes) codes[count++] = code;
  }
};

// What a table in a file asks of its summary; another kind need only do this.
class PageSummary {
 public:
  virtual ~PageSummary() = default;
  virtual Candidates candidates(uint64_t digest) const = 0;  // none: the key is absent
  // The first of the candidates for many; 0: absent.
  virtual void first_candidates(const uint64_t* digests, size_t n, uint8_t* codes) const = 0;
  virtual void add(uint64_t digest, uint8_t code) = 0;  // if there is no memory, nothing but bits of B0 has changed
  virtual void add_many(const uint64_t* digests, size_t n, uint8_t code) = 0;
  // Forgets where a key was; that it was there at all is forgotten by `refresh`.
  virtual void remove(uint64_t digest, uint8_t code) = 0;
  // The keys of a page of level 1 are exactly these, and those on the list.
  virtual void refresh(uint64_t page, const uint64_t* digests, size_t n) = 0;
  virtual uint64_t bytes() const = 0;
  virtual void clear() = 0;
  virtual void write(std::vector<uint8_t>& out) const = 0;
  virtual bool read(const uint8_t* data, uint64_t size, uint32_t codes) = 0;  // false: it does not fit, or its codes
};

// A multiset of digests with a code each: open addressing, in the order of the digests.
class DigestList {
 public:
  explicit DigestList(uint64_t expected) { reset(slots_for(expected)); }

  uint64_t size() const { return size_; }
  uint64_t bytes() const { return digests_.size() * 9; }

  void add(uint64_t digest, uint8_t code) {
    if ((size_ + 1) * 4 > digests_.size() * 3) grow();
    put(digest, code);
    ++size_;
  }
  bool remove(uint64_t digest, uint8_t code) {
    for (uint64_t i = home(digest); codes_[i] != 0; i = next(i)) {
      if (digests_[i] != digest || codes_[i] != code) continue;
      for (uint64_t j = next(i); codes_[j] != 0; j = next(j)) {  // move back whoever would be cut off from its home
        const uint64_t from = distance(home(digests_[j]), j);
        if (from < distance(i, j)) continue;
        digests_[i] = digests_[j];
        codes_[i] = codes_[j];
        i = j;
      }
      codes_[i] = 0;
      digests_[i] = 0;
      --size_;
      return true;
    }
    return false;
  }
  template <typename F>
  void each_code(uint64_t digest, F&& f) const {
    if (size_ == 0) return;
    for (uint64_t i = home(digest); codes_[i] != 0; i = next(i))
      if (digests_[i] == digest) f(codes_[i]);
  }
  // All entries with first ≤ digest ≤ last.
  template <typename F>
  void each_between(uint64_t first, uint64_t last, F&& f) const {
    const uint64_t end = home(last);
    uint64_t i = home(first);
    for (uint64_t seen = 0, reached = 0; seen < digests_.size(); ++seen, i = next(i)) {
      reached |= i == end ? 1 : 0;
      if (codes_[i] != 0) {
        if (digests_[i] >= first && digests_[i] <= last) f(digests_[i], codes_[i]);
      } else if (reached) {
        return;
      }
    }
  }
  template <typename F>
  void each(F&& f) const {
    for (uint64_t i = 0; i < digests_.size(); ++i)
      if (codes_[i] != 0) f(digests_[i], codes_[i]);
  }
  void clear() { reset(digests_.size()); }

 private:
  static uint64_t slots_for(uint64_t entries) { return std::max<uint64_t>(64, entries * 3 / 2); }
  void reset(uint64_t slots) {
    digests_.assign(slots, 0);
    codes_.assign(slots, 0);
    size_ = 0;
  }
  uint64_t home(uint64_t digest) const { return mulhi(digest, digests_.size()); }
  uint64_t next(uint64_t i) const { return i + 1 == digests_.size() ? 0 : i + 1; }
  uint64_t distance(uint64_t from, uint64_t to) const { return to >= from ? to - from : to + digests_.size() - from; }
  void put(uint64_t digest, uint8_t code) {
    uint64_t i = home(digest);
    while (codes_[i] != 0) i = next(i);
    digests_[i] = digest;
    codes_[i] = code;
  }
  void grow() {  // all or nothing: memory first
    std::vector<uint64_t> digests(digests_.size() * 2, 0);
    std::vector<uint8_t> codes(digests.size(), 0);
    digests_.swap(digests);
    codes_.swap(codes);
    for (uint64_t i = 0; i < digests.size(); ++i)
      if (codes[i] != 0) put(digests[i], codes[i]);
  }

  std::vector<uint64_t> digests_;
  std::vector<uint8_t> codes_;  // 0: free
  uint64_t size_ = 0;
};

class PagedBloomSummary final : public PageSummary {
 public:
  PagedBloomSummary(uint64_t pages, uint64_t blocks_per_page, uint32_t hashes, uint64_t expected_listed)
      : pages_(pages),
        per_page_(blocks_per_page),
        bits_(Bits::zeroed(pages * blocks_per_page * 64)),
        view_{bits_.words(), pages * blocks_per_page, 9, hashes},
        loops_(kernel().blocked(9, hashes)),
        list_(expected_listed) {}

  Candidates candidates(uint64_t digest) const override {
    Candidates found;
    uint8_t present;
    loops_.contains_many(view_, &digest, 1, &present);
    if (present) {
      list_.each_code(digest, [&](uint8_t code) { found.add(code); });
      found.add(1);
    }
    return found;
  }
  void first_candidates(const uint64_t* digests, size_t n, uint8_t* codes) const override {
    loops_.contains_many(view_, digests, n, codes);
    for (size_t i = 0; i < n; ++i) {
      if (codes[i] == 0) continue;
      uint8_t first = 0;
      list_.each_code(digests[i], [&](uint8_t code) { first = first == 0 ? code : first; });
      codes[i] = first == 0 ? 1 : first;
    }
  }
  void add(uint64_t digest, uint8_t code) override { add_many(&digest, 1, code); }
  void add_many(const uint64_t* digests, size_t n, uint8_t code) override {
    loops_.add_many(view_, digests, n);
    if (code != 1)
      for (size_t i = 0; i < n; ++i) list_.add(digests[i], code);
  }
  void remove(uint64_t digest, uint8_t code) override {
    if (code != 1) list_.remove(digest, code);
  }
  void refresh(uint64_t page, const uint64_t* digests, size_t n) override {
    std::fill_n(bits_.words() + page * per_page_ * 8, per_page_ * 8, uint64_t{0});
    loops_.add_many(view_, digests, n);
    const uint64_t last = page + 1 == pages_ ? ~uint64_t{0} : least_word_of(page + 1, pages_) - 1;
    list_.each_between(least_word_of(page, pages_), last,
                       [&](uint64_t digest, uint8_t) { loops_.add_many(view_, &digest, 1); });
  }
  uint64_t bytes() const override { return bits_.bytes() + list_.bytes(); }
  void clear() override {
    bits_.clear();
    list_.clear();
  }

  // B0's words │ entries │ the digests in the order of the list │ their codes
  void write(std::vector<uint8_t>& out) const override {
    const auto put = [&](const void* data, size_t n) {
      const auto* p = static_cast<const uint8_t*>(data);
      out.insert(out.end(), p, p + n);
    };
    put(bits_.words(), bits_.bytes());
    const uint64_t entries = list_.size();
    put(&entries, 8);
    list_.each([&](uint64_t digest, uint8_t) { put(&digest, 8); });
    list_.each([&](uint64_t, uint8_t code) { put(&code, 1); });
  }
  bool read(const uint8_t* data, uint64_t size, uint32_t most_codes) override {
    if (size < bits_.bytes() + 8) return false;
    uint64_t entries;
    std::memcpy(&entries, data + bits_.bytes(), 8);
    const uint64_t rest = size - bits_.bytes() - 8;
    if (rest % 9 != 0 || entries != rest / 9) return false;
    clear();
    std::memcpy(bits_.words(), data, bits_.bytes());
    const uint8_t *digests = data + bits_.bytes() + 8, *codes = digests + 8 * entries;
    for (uint64_t i = 0; i < entries; ++i) {
      uint64_t digest;
      std::memcpy(&digest, digests + 8 * i, 8);
      if (codes[i] < 2 || codes[i] > most_codes) return false;
      list_.add(digest, codes[i]);
    }
    return true;
  }

 private:
  uint64_t pages_, per_page_;
  Bits bits_;
  BlockedView view_;
  const BlockedLoops& loops_;
  DigestList list_;
};

}  // namespace evenbins
