// A multilevel table with a summary (summary.hpp): a look-up asks it, and reads the one bucket that it names.
//
//     summary says 0         absent: no bucket is read
//     summary says j         bucket of level j; if the key is not there, the other levels and the list: so a wrong
//                            level, or a false positive, costs reads and is counted
//     summary says d + 1     the overflow list, which costs no bucket
//
// The guide hears of every placement, move, list entry and deletion, and tells the summary. It is no part of the
// table's bytes: a table that is loaded has none until one is attached, by one scan.
//
// Lazy deletions (kirsch, section 4.10.1), for a summary that cannot forget and the scheme "standard", which moves
// nobody: a deleted key leaves its slot empty but *reserved* (one bit a slot, in the guide), so that the summary never
// holds more keys than there are slots in use; the key itself, should it return, is known by its digest, which the
// guide keeps for every slot, and takes its slot again. When `due` slots are reserved, a rebuild begins:
//
//     bucket   0 ─────── scanned ─────────▶ cursor ──────── not yet ──────────▶ │ the list
//              the new summary knows these           the old summary knows all
//
// Each bucket in turn, level by level: reserved slots become free; a key moves to its leftmost bucket further left
// that has room; it goes into the new summary at the level where it then is. At last the keys of the list try again,
// and the new summary takes the old one's place. Every insertion of a new key and every deletion does `steps` buckets
// of that, a number fixed when the guide is made, so no operation takes long; the digests kept make the scan cheap. The
// batch algorithm of the thesis is the same with all steps at once: it moves the same keys.
//
// Invariants. The old summary knows every key in the table (new keys go into it too), at its level or above: levels of
// keys only fall, and it forgets nothing. The new one knows every key that lies before the cursor. If the old summary's
// answer names a bucket before the cursor, a key with that answer, which lies there or further left, is known to the
// new one, whose answer counts; otherwise the old one's does. So neither is 0 for a key that is in.
//
// Tried and dropped: asking both summaries and taking the lesser answer: twice the hashing, and no fewer wrong levels.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "evenbins/summary.hpp"
#include "evenbins/table_view.hpp"

namespace evenbins {

class TableGuide {
 public:
  // What look-ups did so far; not what insertions and deletions did.
  struct Counts {
    uint64_t hits = 0, hit_reads = 0, wrong = 0, misses = 0, miss_reads = 0, false_positives = 0;
  };
  struct Found {
    uint64_t slot = kAbsent, entry = 0;      // of a key that is in: one of them
    uint32_t hint = 0, mask = 0, reads = 0;  // what the summary said; a bit for each level read; how many
    bool list = false;                       // the list was asked
    bool is_in() const { return slot != kAbsent || entry != 0; }
    bool is_wrong(const TableView& t) const;  // of a key that is in
  };

  // `due` reserved slots begin a rebuild; 0: deletions are not lazy. The table's keys are not in yet: `fill`.
  TableGuide(std::unique_ptr<Summary> summary, const TableView& table, uint64_t due);
  std::unique_ptr<TableGuide> copy(const TableView& table) const;
  void fill(const TableView& table);
  void clear();

  bool lazy() const { return due_ > 0; }
  bool can_delete() const { return lazy() || summary_->can_remove(); }
  const Summary& summary() const { return *summary_; }
  uint8_t* reserved() { return reserved_.empty() ? nullptr : reserved_.data(); }
  uint64_t* hashes() { return hashes_.empty() ? nullptr : hashes_.data(); }

  // Levels from 1, the list's being levels + 1; its slot is kAbsent.
  void added(uint64_t digest, uint32_t level, uint64_t slot) {
    summary_->add(digest, level);
    if (next_ != nullptr && is_scanned(slot)) next_->add(digest, level);
  }
  void moved(uint64_t digest, uint32_t from, uint32_t to) { summary_->move(digest, from, to); }
  void removed(uint64_t digest, uint32_t level) {
    if (summary_->can_remove()) summary_->remove(digest, level);
  }

  Found find(const TableView& t, const StoredKey& key, uint64_t digest) const {
    return find(t, key, digest, hint(t, digest));
  }
  Found find(const TableView& t, const StoredKey& key, uint64_t digest, uint32_t hint) const;
  void hints(const TableView& t, const uint64_t* digests, size_t n, uint8_t* out) const;
  void count(const TableView& t, const Found& found, Counts& counts) const;
  void count(const Counts& counts) const;  // adds them up, from any thread

  // False: no room. The caller has looked: `found` says what that read (nothing, if it knows the key to be new).
  bool insert(const TableView& t, const StoredKey& key, uint64_t value, uint64_t digest, const Found& found);
  // What a table does when it has taken a key out of a slot.
  void cleared(const TableView& t, uint64_t slot, uint64_t digest);
  void step(const TableView& t);     // after each change of the set of keys
  void rebuild(const TableView& t);  // all steps at once; begins if none is under way

  struct State {
    Counts counts;
    uint64_t reserved, due, steps, rebuilds, rebuild_moves, cursor, bytes;
    bool rebuilding;
  };
  State state() const;
  std::string check(const TableView& t) const;

 private:
  uint32_t hint(const TableView& t, uint64_t digest) const;
  bool is_scanned(uint64_t slot) const { return slot == kAbsent ? cursor_ == buckets_ : slot / slots_ < cursor_; }
  void begin();
  void scan_bucket(const TableView& t, uint64_t bucket);
  void scan_listed(const TableView& t);

  std::unique_ptr<Summary> summary_, next_;  // next: under construction, or null
  std::vector<uint8_t> reserved_;
  std::vector<uint64_t> hashes_;
  uint64_t due_, buckets_, slots_, steps_ = 0;
  uint64_t cursor_ = 0, listed_left_ = 0;  // buckets scanned; keys of the list to go
  uint64_t reserved_count_ = 0, rebuilds_ = 0, rebuild_moves_ = 0;
  struct Atomics {
    std::atomic<uint64_t> hits = 0, hit_reads = 0, wrong = 0, misses = 0, miss_reads = 0, false_positives = 0;
  };
  mutable Atomics counts_;
};

// The table's own rule for a new key (multilevel.cpp). `read`: a bit for each of its buckets that was read already.
bool place_key(const TableView& t, const StoredKey& key, uint64_t value, uint64_t digest, uint32_t read,
               uint64_t reads);

}  // namespace evenbins
