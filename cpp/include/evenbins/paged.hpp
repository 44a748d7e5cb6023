// The one-read table: buckets are pages of a file, a summary in RAM says which page (kirsch, chapter 4).
//
//     key ──digest──▶ summary (page_summary.hpp) ──▶ absent: no read     ──▶ one page (page_store.hpp), one read
//
// Scheme "standard" (4.2): a key lies in the leftmost level whose page had room when it came. Level 1 has most of the
// pages (4.8: skewed shares); some per mille of the keys go on to level 2, next to none to the last level, of the same
// size. What finds no room there goes to a few overflow pages, in their order; each is a level of its own, so that such
// a key costs one read too. If they are full the table is full. Keys never move: a deletion frees a slot (the page's
// last key takes its place), nothing else.
//
// Integer core: [key type, value type, page_bytes (4096 … 65536, a power of two), overflow pages (0 … 8), blocks of B0
// for each page of level 1, hashes of B0, pages of each level (1 … 8 levels)]. Pages are numbered level after level,
// the overflow pages last. Page of a key in level j: mulhi(word j of its digest, pages of level j), as in all tables.
//
// The summary's file (path + ".summary"): magic "EVBSUMM1", uid and stamp of the header it belongs to, keys, pages n,
// n counts (2 bytes each), then the summary's own (page_summary.hpp), XXH3-64 of all that, seed 0. If uid or stamp
// differ it is of another time and not believed: one scan of the pages makes a new one.
//
// Many look-ups: pages wanted are sorted, neighbours (with gaps of at most kGap pages) are fetched by one read, and
// `in_flight` reads are under way (page_reads.hpp). Many changes: keys sorted by page, so that each page is written
// once in a group of at most kGroupBytes; a group is what the journal makes whole. The caller's arrays are read once,
// into copies of a chunk: whatever another thread writes to them, the key on a page is the key its digest belongs to.
//
// No memory: a group under way is rolled back, which needs none. What follows a group's acknowledgement needs none
// either, or can be left undone (bits of B0 that could be cleared, a checkpoint that comes with the next group).
//
// Processes: what fork leaves in a child shares the file, the journal and the lock with the owner, but not the
// overlay, the counts and the summary. So only the process that opened a table changes it and unlocks it.
//
// Considered, not measured: io_uring, which many containers forbid. A mapped file: a page fault cannot be counted,
// checked or kept in flight. Measured (10M keys, cold, batches of 10,000 and 100,000): 8, 32 and 128 reads in flight
// differ little.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "evenbins/page_reads.hpp"
#include "evenbins/page_store.hpp"
#include "evenbins/page_summary.hpp"
#include "evenbins/table_keys.hpp"

namespace evenbins {

struct PagedShape {
  KeyType key_type;
  ValueType value_type;
  uint64_t page_bytes, overflow_pages, blocks_per_page;
  uint32_t hashes, words, slots;
  std::vector<uint64_t> pages;  // of each level
  uint64_t total_pages;

  static PagedShape of(const Spec& spec);  // validates (SpecError)
  uint32_t levels() const { return static_cast<uint32_t>(pages.size()); }
  uint32_t codes() const { return levels() + static_cast<uint32_t>(overflow_pages); }
};

class PagedTable {
 public:
  static constexpr uint64_t kGap = 3, kRunPages = 64, kGroupBytes = uint64_t{32} << 20, kChunk = uint64_t{1} << 22;
  using Pulse = std::function<bool()>;

  // What look-ups did. `reads` are pages that a key asked for; `fetched` pages that came from the file.
  struct Counters {
    uint64_t found, found_reads, missed, missed_reads, wrong, fetched;
  };
  enum class Outcome { stored, changed, full };
  struct Progress {
    uint64_t done, changed;  // keys dealt with; keys that are new, or were deleted
    bool full;
  };

  static void create(Descriptor& file, const std::string& path, const Spec& spec, uint64_t uid);

  // Takes the descriptors over. `journal` closed: read-only, or a table that is being built (then `writable`).
  PagedTable(Descriptor& table, Descriptor& journal, const std::string& path, bool writable, bool durable);
  ~PagedTable() { close(); }

  const Spec& spec() const { return store_.head().spec; }
  const PagedShape& shape() const { return shape_; }
  PageStore& store() { return store_; }
  const PageStore& store() const { return store_; }
  Tape& tape() { return tape_; }
  void set_knows_cache(bool known) { table_disk_.set_knows_cache(known); }  // for tests
  KeyType key_type() const { return shape_.key_type; }
  bool writable() const { return writable_; }
  uint64_t keys() const { return keys_; }
  const std::vector<uint16_t>& counts() const { return counts_; }
  const PageSummary& summary() const { return *summary_; }
  uint64_t summary_bytes() const { return summary_->bytes() + 2 * counts_.size(); }

  // Before anything else: what an unfinished session left is taken over, and the summary read or made anew.
  uint64_t groups_due() const { return store_.groups_due(); }
  bool recover();  // true: there was something, and the summary has been made anew with it
  bool read_summary(const uint8_t* data, uint64_t size);
  void build_summary(const Pulse& pulse);  // by one scan
  std::vector<uint8_t> summary_file() const;

  bool may_contain(const StoredKey& key) const { return summary_->candidates(hash_.digest(key)).count != 0; }
  void count_absent() const { missed_.fetch_add(1, std::memory_order_relaxed); }  // asked by may_contain alone
  bool find(const StoredKey& key, uint64_t& value) const;
  // Level that has the key, from 1 (overflow pages follow the levels), or 0; pages read.
  struct Probe {
    uint32_t level, reads;
  };
  Probe probe(const StoredKey& key) const;
  // Returns the keys done: all, unless the pulse stopped it. `values` may be null.
  uint64_t get_many(const uint64_t* keys, uint64_t n, uint64_t missing, uint64_t* values, uint8_t* found,
                    const Reads& reads, const Pulse& pulse) const;

  Outcome insert(const StoredKey& key, uint64_t value);
  bool erase(const StoredKey& key);
  Progress insert_many(const uint64_t* keys, const uint64_t* values, uint64_t n, const Reads& reads,
                       const Pulse& pulse);
  Progress erase_many(const uint64_t* keys, uint64_t n, const Reads& reads, const Pulse& pulse);
  void checkpoint() { store_.checkpoint(keys_); }
  // Writes nothing. The owner unlocks the file, though a child may have it open; a child only closes its descriptors.
  void close();
  bool is_open() const { return table_disk_.is_open(); }
  int owner() const { return owner_; }  // the process that opened it
  bool is_own() const { return owner_ == process_id(); }

  // Keys and values from a page and an index in it on; the position after them.
  struct Position {
    uint64_t page, index;
  };
  size_t scan(Position& position, size_t most, uint64_t* keys, uint64_t* values) const;

  Counters counters() const;
  std::vector<uint64_t> level_keys() const;  // then those of the overflow pages
  // Names the first broken invariant, or nothing; reads every page.
  std::string check() const;

 private:
  struct Staged {
    PageImage image;
    uint32_t old_count;
    bool dirty;
  };
  struct Undo {
    uint64_t digest;
    uint8_t code;
    bool added;
  };

  uint64_t page_of(uint64_t digest, uint8_t code) const {
    if (code > shape_.levels()) return first_of_[shape_.levels()] + code - shape_.levels() - 1;
    return first_of_[code - 1] + mulhi(word_of(digest, code - 1), shape_.pages[code - 1]);
  }
  uint64_t* keys_of(uint8_t* image) const { return reinterpret_cast<uint64_t*>(image + PageStore::kPageHead); }
  const uint64_t* keys_of(const uint8_t* image) const {
    return reinterpret_cast<const uint64_t*>(image + PageStore::kPageHead);
  }
  uint64_t* values_of(uint8_t* image) const { return keys_of(image) + uint64_t{shape_.slots} * shape_.words; }
  const uint64_t* values_of(const uint8_t* image) const {
    return keys_of(image) + uint64_t{shape_.slots} * shape_.words;
  }
  uint32_t slot_of(const uint8_t* image, const StoredKey& key) const;  // slots() if it is not there
  StoredKey key_at(const uint8_t* image, uint32_t i) const {
    const uint64_t* k = keys_of(image) + uint64_t{i} * shape_.words;
    return {k[0], shape_.words == 2 ? k[1] : 0};
  }
  const uint8_t* look(uint64_t page, uint8_t* buffer) const;  // the overlay's, or read into the buffer

  // The group under way.
  Staged& stage(uint64_t page);
  void prefetch(const std::vector<uint64_t>& pages, const Reads& reads);
  Outcome stage_insert(const StoredKey& key, uint64_t digest, uint64_t value);
  bool stage_erase(const StoredKey& key, uint64_t digest);
  void append(uint64_t page, uint8_t code, const StoredKey& key, uint64_t digest, uint64_t value);
  void commit();
  void roll_back();
  template <typename F>
  Progress in_groups(const uint64_t* keys, const uint64_t* values, uint64_t n, const Reads& reads, const Pulse& pulse,
                     F&& change);
  std::vector<uint64_t> digests_of(const uint8_t* image) const;
  template <typename F>
  void each_page(const Pulse* pulse, F&& f) const;

  Tape tape_;
  Disk table_disk_, journal_disk_;
  PageStore store_;
  PagedShape shape_;
  KeyHash hash_;
  bool writable_, with_journal_;
  const int owner_ = process_id();
  std::vector<uint64_t> first_of_;  // page of each level, and of the overflow
  std::vector<uint16_t> counts_;    // keys of each page
  uint64_t keys_ = 0;
  std::unique_ptr<PageSummary> summary_;

  std::unordered_map<uint64_t, Staged> staged_;
  std::vector<Undo> undo_;
  std::vector<uint64_t> to_refresh_;
  uint64_t keys_before_ = 0;

  mutable std::atomic<uint64_t> found_ = 0, found_reads_ = 0, missed_ = 0, missed_reads_ = 0, wrong_ = 0, fetched_ = 0;
};

}  // namespace evenbins
