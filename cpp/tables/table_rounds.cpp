#include "evenbins/table_rounds.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <deque>
#include <exception>
#include <new>
#include <optional>
#include <vector>

#include "evenbins/compiler.hpp"
#include "evenbins/threads.hpp"
#include "table_parts.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kStretch = uint64_t{1} << 14;  // keys of one thread between two looks at the pulse
constexpr uint64_t kKeysOfThread = 8192;          // that pay for a thread
constexpr uint64_t kRoundKeys = 2048;             // of each thread in a round
constexpr uint64_t kFewestKeys = 1024;            // of a round: shorter ones would be waiting
constexpr uint64_t kMostKeys = 65536;             // of a round: each takes some 200 bytes, in several rounds
constexpr uint64_t kChunk = 256;                  // what a thread takes of a round at a time
constexpr uint64_t kUnitsOfKey = 16;              // bytes of occupancy for each key of a round, so that few meet

// Bytes of occupancy: what keys of a round must not share.
uint64_t units_of(const TableView& t) { return (t.first[t.levels - 1] + t.buckets[t.levels - 1]) * t.slots / 8 + 1; }
uint32_t unit_of(const TableView& t, uint64_t bucket) {
  return static_cast<uint32_t>(bucket * t.slots / 8);  // of a table of 2^35 slots two may be taken for one
}

// Which key of the round was the first to touch a unit: open addressing, emptied by numbers that only grow.
class Touched {
 public:
  explicit Touched(uint64_t units) : entries_(std::bit_ceil(4 * units)) {}
  void begin(uint64_t keys) {
    std::fill(std::begin(bits_), std::end(bits_), 0);
    if (next_ > UINT32_MAX - keys) {
      std::fill(entries_.begin(), entries_.end(), Entry{});
      next_ = 1;
    }
    base_ = next_;
    next_ += static_cast<uint32_t>(keys);
  }
  void prefetch(uint32_t unit) const { __builtin_prefetch(&entries_[unit & (entries_.size() - 1)]); }
  // The first key of the round that touched the unit; `key` itself if none did.
  uint32_t touch(uint32_t unit, uint32_t key) {
    Entry& entry = entries_[place(unit)];
    if (entry.number < base_) entry = {unit, base_ + key};
    bits_[unit % kBits / 64] |= uint64_t{1} << (unit % 64);
    return entry.number - base_;
  }
  // The same without a touch, and `none` if nobody did.
  uint32_t find(uint32_t unit, uint32_t none) const {
    if ((bits_[unit % kBits / 64] >> (unit % 64) & 1) == 0) return none;
    const Entry& entry = entries_[place(unit)];
    return entry.number < base_ ? none : entry.number - base_;
  }

 private:
  struct Entry {
    uint32_t unit = 0, number = 0;
  };
  size_t place(uint32_t unit) const {
    const size_t mask = entries_.size() - 1;
    size_t at = unit & mask;
    while (entries_[at].number >= base_ && entries_[at].unit != unit) at = (at + 1) & mask;
    return at;
  }
  static constexpr uint32_t kBits = 1 << 18;  // of a first look, in the first-level cache: most units are not touched
  std::vector<Entry> entries_;
  uint64_t bits_[kBits / 64] = {};
  uint32_t base_ = 1, next_ = 1;
};

// The keys of a round, copied: an array that somebody changes meanwhile does no harm.
class Round {
 public:
  Round(const TableView& t, const Kernel& kernel, uint64_t most)
      : t_(t),
        kernel_(kernel),
        keys(most * t.words),
        values(most * t.value_words),
        undo(most),
        status(most),
        added(most),
        digests_(most),
        touched_(most * t.levels) {}

  void prepare(const uint64_t* all_keys, const uint64_t* all_values, uint64_t first, uint64_t count, uint32_t number) {
    start = first;
    size = count;
    shared = 0;
    std::copy_n(all_keys + start * t_.words, size * t_.words, keys.data());
    if (all_values != nullptr) std::copy_n(all_values + start, size * t_.value_words, values.data());
    t_.hash.digests(kernel_, keys.data(), size, digests_.data());
    touched_.begin(size);
    constexpr size_t kGroup = 64;
    uint32_t units[kGroup * kMaxLevels];
    for (size_t group = 0; group < size; group += kGroup) {
      const size_t n = std::min<size_t>(kGroup, size - group);
      for (size_t i = 0, at = 0; i < n; ++i)
        for (uint32_t j = 0; j < t_.levels; ++j) {
          units[at] = unit_of(t_, bucket_of(t_, digests_[group + i], j));
          touched_.prefetch(units[at++]);
        }
      for (size_t i = 0, at = 0; i < n; ++i) {
        const auto key = static_cast<uint32_t>(group + i);
        bool is_free = true;
        for (uint32_t j = 0; j < t_.levels; ++j) is_free &= touched_.touch(units[at++], key) == key;
        status[key] = is_free ? KeyStatus::free : KeyStatus::later;
      }
    }
    ticket_ = uint64_t{number} << 32;
    ready = number + 1;
    ready.notify_all();
  }
  // Takes a chunk of the round of this number and size: its first key, or `count` if there is none left. By then this
  // may be another round, of which nothing is taken, and nothing else may be looked at.
  uint64_t take_chunk(uint32_t number, uint64_t count) {
    for (uint64_t ticket = ticket_;;) {
      const auto first = static_cast<uint32_t>(ticket);
      if (ticket >> 32 != number || first >= count) return count;
      if (ticket_.compare_exchange_weak(ticket, ticket + kChunk)) return first;
    }
  }
  StoredKey key(uint64_t i) const {
    const uint64_t* words = keys.data() + i * t_.words;
    return {words[0], t_.words == 2 ? words[1] : 0};
  }
  uint64_t digest(uint64_t i) const { return digests_[i]; }
  uint32_t unit(uint64_t bucket) const { return unit_of(t_, bucket); }
  uint32_t toucher(uint64_t bucket, uint32_t none) const { return touched_.find(unit_of(t_, bucket), none); }
  bool is_touched(uint64_t bucket) const { return toucher(bucket, ~0u) != ~0u; }
  // Whether no key of the round before this one touches its buckets.
  bool is_free(uint64_t i) const {
    bool first = true;
    for (uint32_t j = 0; j < t_.levels; ++j) first &= toucher(bucket_of(t_, digests_[i], j), ~0u) == i;
    return first;
  }
  // The first key from `i` on that is `later`, or `end`: eight at a time, and none behind `end`, which may be another
  // thread's.
  uint64_t next_later(uint64_t i, uint64_t end) const {
    constexpr uint64_t kLow = 0x0101010101010101, kHigh = 0x8080808080808080;
    static_assert(static_cast<uint8_t>(KeyStatus::later) == 1);
    for (; i + 8 <= end; i += 8) {
      uint64_t word;
      std::memcpy(&word, status.data() + i, 8);
      word ^= kLow;  // a byte that was 1 is 0
      if (const uint64_t zeros = (word - kLow) & ~word & kHigh; zeros != 0)
        return i + static_cast<uint64_t>(std::countr_zero(zeros)) / 8;
    }
    while (i < end && status[i] != KeyStatus::later) ++i;
    return i;
  }
  // Calls act(i) for the keys that are `later`, in order, until it answers false; soon(i) some keys before.
  template <typename Soon, typename Act>
  void each_later(const Soon& soon, const Act& act) {
    Ahead lines{8}, others{4};
    for (uint64_t i = next_later(0, size); i < size; i = next_later(i + 1, size)) {
      lines.go_on(*this, i, [&](uint64_t key) {
        for (uint32_t j = 0; j < t_.levels; ++j) {
          const uint64_t bucket = bucket_of(t_, digests_[key], j);
          __builtin_prefetch(t_.records + bucket * t_.stride, 1);
          __builtin_prefetch(t_.occupied + bucket * t_.slots / 8, 1);
        }
      });
      others.go_on(*this, i, soon);
      if (!act(i)) return;
    }
  }

 private:
  const TableView& t_;
  const Kernel& kernel_;

 public:
  std::vector<uint64_t> keys, values, undo;
  std::vector<KeyStatus> status;
  std::vector<uint8_t> added;
  uint64_t start = 0, size = 0;
  std::atomic<uint64_t> shared = 0;  // keys that were dealt with, or are later
  std::atomic<uint32_t> ready = 0;   // the number of the round that has been prepared, plus one

 private:
  // Looks for keys that are `later`, some of them ahead of the one that is dealt with.
  struct Ahead {
    uint64_t distance, at = 0, count = 0;  // `count` of those before `at` have not been dealt with

    template <typename See>
    void go_on(const Round& round, uint64_t current, const See& see) {
      if (at > current) count -= count > 0;  // one of them is dealt with now
      at = std::max(at, current);
      for (; count < distance && (at = round.next_later(at, round.size)) < round.size; ++at) {
        see(at);
        count += at > current;
      }
    }
  };
  std::vector<uint64_t> digests_;
  Touched touched_;
  std::atomic<uint64_t> ticket_ = ~uint64_t{0};  // the number of the round, and its first key that nobody has taken
};

// One thread's view of the table: what it counts is added to the table's counters when it ends.
class Counted {
 public:
  explicit Counted(const TableView& t) : view(t), all_(t.state) {
    listed_ = own_[kListed] = all_[kListed];
    view.state = own_;
  }
  ~Counted() {
    own_[kListed] -= listed_;
    for (uint32_t i = 0; i < kStateWords; ++i)
      if (own_[i] != 0) std::atomic_ref(all_[i]).fetch_add(own_[i], std::memory_order_relaxed);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  TableView view;

 private:
  uint64_t* all_;
  uint64_t own_[kStateWords] = {}, listed_;
};

// Waits until a number is another one.
void wait_while(const std::atomic<uint32_t>& number, uint32_t old) {
  constexpr int kSpins = 2000;  // some tens of microseconds: to wake a sleeping thread takes as long
  for (int spin = 0; spin < kSpins; ++spin) {
    if (number != old) return;
    EVENBINS_PAUSE();
  }
  number.wait(old);
}

// Rounds in memory, since preparing takes a fifth as long as sharing; none if there is no memory for them.
std::deque<Round> make_rounds(const TableView& t, const Kernel& kernel, uint64_t n, uint64_t round_keys,
                              uint32_t threads) {
  const uint64_t most = std::max<uint64_t>(4 * kMostKeys / round_keys, 3), all = (n - 1) / round_keys + 1;
  std::deque<Round> rounds;
  try {
    for (uint64_t i = std::min({3 + uint64_t{threads} / 4, most, all}); i > 0; --i)
      rounds.emplace_back(t, kernel, round_keys);
  } catch (const std::bad_alloc&) {
    rounds.clear();
  }
  return rounds;
}

// Runs the rounds on up to `threads` threads. share(round, first, n) deals with the free keys of a chunk; finish(round)
// with those that are later, and returns how many keys of the round are done: fewer than all end the work.
//
// The thread that ends the last chunk of a round finishes it. The others prepare rounds meanwhile, some in advance.
template <typename Share, typename Finish>
uint64_t in_rounds(std::deque<Round>& rounds, const uint64_t* keys, const uint64_t* values, uint64_t n,
                   uint64_t round_keys, uint32_t threads, const std::function<bool()>& pulse, const Share& share,
                   const Finish& finish) {
  const auto ahead = static_cast<uint32_t>(rounds.size());
  const auto all = static_cast<uint32_t>((n - 1) / round_keys + 1);
  const auto size_of = [&](uint32_t r) { return std::min(round_keys, n - r * round_keys); };
  std::exception_ptr failure;  // the calling thread's
  std::atomic<bool> stop = false, end = false;
  std::atomic<uint32_t> next = 0, finished = 0;  // rounds that somebody prepares or has prepared; that are finished
  uint64_t done = 0;
  const uint32_t generation = forks();
  const auto prepare_one = [&] {
    uint32_t r = next;
    if (r >= all || r - finished >= ahead || !next.compare_exchange_strong(r, r + 1)) return false;
    rounds[r % ahead].prepare(keys, values, r * round_keys, size_of(r), r);
    return true;
  };
  const auto share_round = [&](uint32_t r) {
    Round& round = rounds[r % ahead];
    const uint64_t size = size_of(r);
    for (uint64_t first; (first = round.take_chunk(r, size)) < size;) {
      const uint64_t count = std::min(kChunk, size - first);
      share(round, first, count);
      if (round.shared.fetch_add(count) + count < size) continue;
      const uint64_t treated = finish(round);
      done = round.start + treated;
      if (stop || treated < size || done == n) end = true;
      finished = r + 1;
      finished.notify_all();
    }
  };
  run_on_threads(threads, [&](uint32_t thread) {
    for (uint32_t r = 0; !end; r = finished) {
      if (thread == 0) {
        try {
          if (!pulse()) stop = true;
        } catch (...) {
          failure = std::current_exception();
          stop = true;
        }
        if (forks() != generation) return;  // a signal handler has forked: the other threads are the parent's
      }
      for (uint32_t ready; (ready = rounds[r % ahead].ready) <= r;)
        if (!prepare_one()) wait_while(rounds[r % ahead].ready, ready);
      share_round(r);
      while (finished <= r)
        if (!prepare_one()) wait_while(finished, r);
    }
  });
  if (failure) std::rethrow_exception(failure);
  return done;
}

// Keys of a round for these threads; 0 if one thread should do all.
uint64_t round_keys_of(const TableView& t, uint64_t n, uint32_t& threads) {
  threads = static_cast<uint32_t>(std::min<uint64_t>(threads, n / kKeysOfThread));
  const uint64_t keys = std::min({threads * kRoundKeys, kMostKeys, units_of(t) / kUnitsOfKey, n});
  return threads < 2 || keys < kFewestKeys ? 0 : keys;
}

// The choice of a key that finds no bucket by the fast rule, made ahead by the thread that found its buckets full.
// It holds if no bucket that it looked at has changed until the key's turn: no key of the round has one of them (else
// there is no such choice), so that only another move can have changed it.
struct AheadChoice {
  Choice choice;
  uint64_t reads;
};

class Insertion {
 public:
  Insertion(const MultilevelTable& table, bool are_new, uint8_t* added, uint64_t round_keys)
      : table_(table),
        t_(table.view()),
        are_new_(are_new),
        added_(added),
        most_looks_(t_.levels * t_.slots * (t_.levels - 1)),
        looks_(round_keys),
        ahead_(most_looks_ <= kMostLooks ? round_keys : 0),
        looked_(ahead_.size() * most_looks_) {}

  void share(Round& round, uint64_t first, uint64_t n) {
    std::fill_n(looks_.data() + first, n, 0);
    {
      const Counted counted(t_);
      table_.loops().insert_many(counted.view, round.keys.data() + first * t_.words,
                                 round.values.data() + first * t_.value_words, n, are_new_,
                                 {.added = added_ == nullptr ? nullptr : round.added.data() + first,
                                  .status = round.status.data() + first,
                                  .undo = round.undo.data() + first});
    }
    if (ahead_.empty()) return;
    for (uint64_t i = round.next_later(first, first + n); i < first + n; i = round.next_later(i + 1, first + n))
      if (round.is_free(i)) choose_ahead(round, i);
  }

  // Returns how many keys of the round are in.
  uint64_t finish(Round& round) {
    round_ = &round;
    std::fill(std::begin(changed_), std::end(changed_), 0);
    TableView alone = t_;
    alone.round = this;
    alone.before_look = [](void* self, uint64_t bucket) { return static_cast<Insertion*>(self)->settle(bucket); };
    uint64_t done = round.size;
    round.each_later([&](uint64_t i) { look_ahead(i); },
                     [&](uint64_t i) {
                       current_ = i;
                       const bool is_in = insert(alone, i);
                       if (!is_in) done = i;
                       return is_in;
                     });
    for (uint64_t i = done; i < round.size; ++i) take_back(i);
    if (added_ != nullptr) std::copy_n(round.added.data(), done, added_ + round.start);
    return done;
  }

 private:
  static constexpr uint32_t kMostLooks = 64, kBits = 1 << 16;

  uint32_t levels_read() const { return are_new_ ? 0 : ~0u; }
  uint64_t reads() const { return are_new_ ? 0 : t_.levels; }

  void choose_ahead(Round& round, uint64_t i) {
    struct Look {
      const Round& round;
      uint32_t* units;
      uint32_t count = 0;
      bool is_clean = true;
    } look{round, looked_.data() + i * most_looks_};
    TableView view = t_;
    view.round = &look;
    view.before_look = [](void* context, uint64_t bucket) {
      auto& mine = *static_cast<Look*>(context);
      mine.is_clean = mine.is_clean && !mine.round.is_touched(bucket);
      if (mine.is_clean) mine.units[mine.count++] = mine.round.unit(bucket);
      return mine.is_clean;
    };
    uint64_t total = reads();
    const Choice choice = choose_place(view, round.digest(i), levels_read(), total);
    if (!look.is_clean) return;
    ahead_[i] = {choice, total};
    looks_[i] = static_cast<uint8_t>(look.count);
  }

  bool insert(const TableView& alone, uint64_t i) {
    const StoredKey key = round_->key(i);
    const uint64_t digest = round_->digest(i), value = t_.value_words == 0 ? 0 : round_->values[i];
    uint64_t total = reads();
    Choice choice;
    if (holds(i)) {
      choice = ahead_[i].choice;
      total = ahead_[i].reads;
    } else {
      if (uint64_t* present = are_new_ ? nullptr : table_.find(key); present != nullptr) {
        if (t_.value_words != 0) *present = value;
        round_->added[i] = 0;
        return true;
      }
      choice = choose_place(alone, digest, levels_read(), total);
    }
    if (!place_as_chosen(t_, choice, key, value, digest, total)) return false;
    if (choice.way == Choice::Way::move) {
      const uint32_t unit = round_->unit(choice.destination);
      changed_[unit % kBits / 64] |= uint64_t{1} << (unit % 64);
    }
    round_->added[i] = 1;
    return true;
  }
  bool holds(uint64_t i) const {
    if (looks_[i] == 0) return false;
    const uint32_t* units = looked_.data() + i * most_looks_;
    uint64_t changed = 0;
    for (uint32_t k = 0; k < looks_[i]; ++k) changed |= changed_[units[k] % kBits / 64] >> (units[k] % 64) & 1;
    return changed == 0;
  }

  // Asks for what an insertion will look at that moves a resident: where it goes, or may go.
  void look_ahead(uint64_t i) const {
    if (looks_[i] != 0) {
      const Choice& choice = ahead_[i].choice;
      if (choice.way == Choice::Way::move) __builtin_prefetch(t_.records + choice.destination * t_.stride, 1);
      return;
    }
    uint64_t own[kMaxLevels];
    for (uint32_t j = 0; j < t_.levels; ++j) {
      own[j] = bucket_of(t_, round_->digest(i), j);
      if (taken_in(t_, own[j]) != full_mask(t_)) return;  // it moves none
    }
    for (uint32_t j = 0; j < t_.levels; ++j)
      for (uint32_t s = 0; s < t_.slots; ++s) {
        const uint64_t digest = t_.hash.digest(key_at(t_, own[j] * t_.slots + s));
        for (uint32_t to = 0; to < t_.levels; ++to)
          if (to != j) __builtin_prefetch(t_.occupied + bucket_of(t_, digest, to) * t_.slots / 8);
      }
  }
  // The key that is being inserted looks at a bucket: a key behind it that touches this bucket comes after it.
  bool settle(uint64_t bucket) {
    const uint32_t other = round_->toucher(bucket, 0);
    if (other > current_) {
      looks_[other] = 0;
      if (round_->status[other] == KeyStatus::placed) {  // a replaced value changes no bucket
        take_back(other);
        round_->status[other] = KeyStatus::later;
      }
    }
    return true;
  }
  void take_back(uint64_t i) {
    if (round_->status[i] == KeyStatus::placed) {
      clear_slot(t_, round_->undo[i]);
      --t_.state[kInsertions];
      t_.state[kInsertionReads] -= reads();
    } else if (round_->status[i] == KeyStatus::replaced && t_.value_words != 0) {
      *table_.find(round_->key(i)) = round_->undo[i];
    }
  }

  const MultilevelTable& table_;
  const TableView& t_;
  const bool are_new_;
  uint8_t* added_;
  const uint32_t most_looks_;
  std::vector<uint8_t> looks_;      // of each key: units that its choice looked at; 0: there is no choice
  std::vector<AheadChoice> ahead_;  // empty if keys look at too many buckets
  std::vector<uint32_t> looked_;
  uint64_t changed_[kBits / 64] = {};  // units that a key was moved to in this round
  Round* round_ = nullptr;
  uint64_t current_ = 0;  // the key that is being inserted
};

struct Deletion {
  MultilevelTable& table;
  const TableView& t;
  std::atomic<uint64_t> erased = 0;

  void share(Round& round, uint64_t first, uint64_t n) {
    constexpr uint64_t kGroup = 32;
    const Counted counted(t);
    for (uint64_t group = first; group < first + n; group += kGroup) {
      const uint64_t last = std::min(group + kGroup, first + n);
      for (uint64_t i = group; i < last; ++i)
        for (uint32_t j = 0; j < t.levels; ++j)
          __builtin_prefetch(t.records + bucket_of(t, round.digest(i), j) * t.stride, 1);
      for (uint64_t i = group; i < last; ++i)
        if (round.status[i] != KeyStatus::later) erase(counted.view, round, i);
    }
    erased += counted.view.state[kDeletions];
  }
  uint64_t finish(Round& round) {
    round.each_later([](uint64_t) {},
                     [&](uint64_t i) {
                       erased += table.erase(round.key(i));
                       return true;
                     });
    return round.size;
  }

 private:
  void erase(const TableView& own, Round& round, uint64_t i) const {
    const StoredKey key = round.key(i);
    const uint64_t slot = table.loops().find(own, key.low, key.high, round.digest(i));
    if (slot == kAbsent) {
      if (own.state[kListed] > 0) round.status[i] = KeyStatus::later;
      return;
    }
    clear_slot(own, slot);
    ++own.state[kDeletions];
  }
};

// step(start, count) deals with a stretch of the keys and returns how many of them are done.
template <typename Step>
void in_stretches(TableProgress& progress, uint64_t n, const std::function<bool()>& pulse, const Step& step) {
  while (progress.done < n && !progress.full && pulse()) {
    const uint64_t count = std::min(kStretch, n - progress.done);
    const uint64_t taken = step(progress.done, count);
    progress.done += taken;
    progress.full = taken < count;
  }
}

}  // namespace

TableProgress insert_all(MultilevelTable& table, const uint64_t* keys, const uint64_t* values, uint64_t n, bool are_new,
                         uint8_t* added, uint32_t threads, const std::function<bool()>& pulse) {
  const TableView& t = table.view();
  const uint64_t before = t.state[kInsertions];
  TableProgress progress;
  const bool in_order = table.guide() != nullptr || !t.occupancy_bits;
  const uint64_t round_keys = in_order ? 0 : round_keys_of(t, n, threads);
  std::deque<Round> rounds;
  std::optional<Insertion> insertion;
  if (round_keys != 0) try {
      insertion.emplace(table, are_new, added, round_keys);
      rounds = make_rounds(t, table.kernel(), n, round_keys, threads);
    } catch (const std::bad_alloc&) {  // one thread needs no memory
    }
  if (!rounds.empty()) {
    progress.done = in_rounds(
        rounds, keys, t.value_words == 0 ? nullptr : values, n, round_keys, threads, pulse,
        [&](Round& round, uint64_t first, uint64_t count) { insertion->share(round, first, count); },
        [&](Round& round) {
          const uint64_t done = insertion->finish(round);
          progress.full = done < round.size;
          return done;
        });
  } else {
    in_stretches(progress, n, pulse, [&](uint64_t start, uint64_t count) {
      return table.insert_many(keys + start * t.words, t.value_words == 0 ? nullptr : values + start, count, are_new,
                               added == nullptr ? nullptr : added + start);
    });
  }
  progress.changed = t.state[kInsertions] - before;
  return progress;
}

TableProgress erase_all(MultilevelTable& table, const uint64_t* keys, uint64_t n, uint32_t threads,
                        const std::function<bool()>& pulse) {
  const TableView& t = table.view();
  TableProgress progress;
  // A deletion may bring back a key of the list: the order matters until that is empty.
  const auto in_order = [&] {
    return threads < 2 || table.guide() != nullptr || (t.scheme == Scheme::least_loaded && t.state[kListed] > 0);
  };
  while (progress.done < n) {
    uint32_t useful = threads;
    const uint64_t left = n - progress.done, round_keys = in_order() ? 0 : round_keys_of(t, left, useful);
    std::deque<Round> rounds;
    if (round_keys != 0) rounds = make_rounds(t, table.kernel(), left, round_keys, useful);
    if (!rounds.empty()) {
      Deletion deletion{table, t};
      progress.done += in_rounds(
          rounds, keys + progress.done * t.words, nullptr, left, round_keys, useful, pulse,
          [&](Round& round, uint64_t first, uint64_t count) { deletion.share(round, first, count); },
          [&](Round& round) { return deletion.finish(round); });
      progress.changed += deletion.erased;
      return progress;
    }
    if (round_keys != 0) threads = 1;  // there was no memory
    if (!pulse()) return progress;
    const uint64_t count = std::min(kStretch, left);
    progress.changed += table.erase_many(keys + progress.done * t.words, count);
    progress.done += count;
  }
  return progress;
}

}  // namespace evenbins
