// Bulk work on one filter by several threads.
//
// `Digests` is where keys come from: a random-access source of digests, usable by many threads at once.
// `Pulse` is called by the calling thread every so often; when it answers false the work stops (Ctrl-C).
//
//     query   threads take stretches of the input in turn, each writes its own answers
//     add     rounds (rounds.hpp): a slice of the keys is digested, and its items are sorted by the part of the memory
//             to which they lead; then each part gets its items of all slices, in the order of the slices. A filter
//             with levels does that once for each level. One that can do neither is filled by one thread. A small
//             one whose bits are those of its keys is filled in copies, one for each thread, which are then united.
//
//     add_new, add with an answer for each key: by ranges where the answer follows from the items of a key, else by one
//             thread
//     remove  in the order of the keys, by one thread
//
// A key that has no digest (a null, say) throws BadKey, and one for which there is no room throws FilterFull; then
// exactly the keys before it are in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "evenbins/filter.hpp"

namespace evenbins {

class BadKey : public std::runtime_error {
 public:
  enum class Type { type, value };
  BadKey(uint64_t index, Type type, const std::string& what) : std::runtime_error(what), index(index), type(type) {}
  uint64_t index;
  Type type;
};

class FilterFull : public std::runtime_error {
 public:
  explicit FilterFull(uint64_t index) : std::runtime_error("the filter is full"), index(index) {}
  uint64_t index;  // of the key for which there was no room
};

class Digests {
 public:
  virtual ~Digests() = default;
  virtual uint64_t size() const = 0;
  // Digests of keys start … start+n−1. Throws BadKey for the first that has none.
  virtual void read(uint64_t start, size_t n, uint64_t* out) const = 0;
  // Whether they are the same every time: the caller's keys are not, if another thread writes to them.
  virtual bool stay() const { return false; }
};

// Digests in memory that belongs to us.
class DigestSpan final : public Digests {
 public:
  DigestSpan(const uint64_t* digests, uint64_t n) : digests_(digests), n_(n) {}
  uint64_t size() const override { return n_; }
  void read(uint64_t start, size_t n, uint64_t* out) const override { std::copy_n(digests_ + start, n, out); }
  bool stay() const override { return true; }

 private:
  const uint64_t* digests_;
  uint64_t n_;
};

using Pulse = std::function<bool()>;

// All return the number of keys done: all of them, unless the pulse stopped the work.
uint64_t add_all(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse);
// The same for a filter from which keys can be removed; but if there is no room, throws FilterFull(0), and none is in.
// So it does at once if the copies in the filter would be more than `limit`. Of a filter that is no multiset only what
// was absent is taken back. A piece of the keys that another thread has changed meanwhile stays in: what it added is not
// known any more.
uint64_t add_all_or_none(Filter& filter, const Digests& keys, uint64_t limit, uint32_t threads, const Pulse& pulse);
// out[i] = 1 for the keys that were absent; see Filter::add_new_many.
uint64_t add_new_all(Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse);
uint64_t contains_all(const Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse);
uint64_t count_all(const SupportsCounting& filter, const Digests& keys, int64_t* out, uint32_t threads,
                   const Pulse& pulse);
// Of a filter that supports it; out[i] = 1 for the keys that were there.
uint64_t remove_all(Filter& filter, const Digests& keys, uint8_t* out, uint32_t threads, const Pulse& pulse);

}  // namespace evenbins
