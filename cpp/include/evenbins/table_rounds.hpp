// Changes of a multilevel table by several threads, with the bytes of one.
//
// The keys go in by rounds. A key touches its own bucket of each level; two keys of a round that have none in common
// may be treated in any order, and nearly all keys of a round have none in common with any other:
//
//     prepare   one thread, in the order of the keys: a key is `free` if no key before it touches one of its buckets,
//               else `later`. Depends on the keys alone, so that a thread with nothing else to do prepares a round
//               that comes later: while another one finishes this round, above all.
//     share     all threads: the free keys, in any order, by the loops that one thread uses. A key whose buckets are
//               all full becomes `later`, since it looks at buckets that are not its own. Its place is chosen here
//               if no key of the round touches one of these.
//     finish    one thread, in the order of the keys: those that are `later`. A choice made ahead holds unless a bucket
//               that it looked at has changed since. A key k that chooses now may look at a bucket of a key l > k that
//               has been placed already: l is taken back first and becomes `later`.
//
// So each key sees in its buckets exactly what the keys before it have left, and the bytes, counters and answers are
// those of one thread, whatever the number of threads and the length of the rounds. If a key finds no room, the keys
// of its round behind it are taken back: exactly the keys before it are in.
//
// Buckets are told apart by the byte of their occupancy bits, which the threads could not change at the same time.
// Tables with a summary, and those that count every look at a bucket (no occupancy bits), are changed by one
// thread: there each change depends on the one before. A deletion that may bring back a key of the overflow list
// (least-loaded, while that list is not empty) is done by one thread too.
#pragma once

#include <cstdint>
#include <functional>

#include "evenbins/multilevel.hpp"

namespace evenbins {

struct TableProgress {
  uint64_t done = 0;     // keys dealt with: all, unless the pulse stopped the work or the next one has no room
  uint64_t changed = 0;  // keys that are new, or that were erased
  bool full = false;
};

// As MultilevelTable::insert_many and erase_many. `added`: of a set, or null; the places of keys that are not done stay
// as they are.
TableProgress insert_all(MultilevelTable& table, const uint64_t* keys, const uint64_t* values, uint64_t n, bool are_new,
                         uint8_t* added, uint32_t threads, const std::function<bool()>& pulse);
TableProgress erase_all(MultilevelTable& table, const uint64_t* keys, uint64_t n, uint32_t threads,
                        const std::function<bool()>& pulse);

}  // namespace evenbins
