// Checksummed pages in a file, and a journal that makes a group of changes to them happen whole or not at all.
//
//     table     │ header 0 │ header 1 │ … │ page 0 │ page 1 │ …            page p at (2 + p)·page_bytes
//     journal   │ group │ group │ …                                         path + ".journal"
//
// Everything is little endian. A header is 4096 bytes, at 0 and at 4096; the valid one of the higher generation counts:
//       0  magic "EVENBINS"   8  version 1 (4 bytes), kind 13 (4)   16  hash id 1 (4), hashing 1 (4)   24  seed
//      32  capacity          40  c, words of the core              48  uid, random, of this table
//      56  generation: groups in the pages          64  stamp, random, anew with each generation written
//      72  keys              80  the core            …  zeros    4088  XXH3-64 of the 4088 bytes before, seed 0
// A page:
//       0  XXH3-64 of the rest of the page, seed splitmix(uid, p)     8  keys in it (4 bytes), 0 (4)
//      16  slots keys (8 bytes, digests 16)          …  slots values (8 bytes each)    …  zeros; free slots are zero
// A group of the journal:
//       0  magic "EVBJRNL1"   8  uid   16  number of the group, from 1   24  pages n
//      32  bit 0: whether the group before was on disk when this was written; the others: those of the header's stamp
//          (0 in journals of old)                                              40  XXH3-64 of the 40 bytes before
//      48  the n numbers of pages, the n pages        …  XXH3-64 of all that from 48 on, seed: the number of the group
//
// A change:      1 journal: append the group, sync ─▶ acknowledged     2 the pages stay in memory (`overlay`)
// A checkpoint:  1 journal: sync   2 table: write the overlay in place, sync   3 table: write the older header anew
//                with the new generation, sync   4 journal: truncate, sync
// Opening:       read the groups whose number follows on the header's generation, until one is not whole: that one was
//                never acknowledged. Put their pages in the overlay; checkpoint.
//
// So a page is never written in place before its image is on disk elsewhere: a torn page, or a torn header, is repaired
// on opening, and found by its checksum if that cannot be. Groups become visible in order: after a crash the table is
// as it was after some group, and not before the last acknowledged one. Without sync (durable = false) the same holds
// but for "acknowledged": then it means that the system has the group, which survives the end of this process.
// A group that is not whole though a later one says it was on disk is damage, not a crash: FormatError. So is a group
// that is due and was written behind another header: the journal of a copy of the table that went its own way. (A crash
// between 3 and 4 leaves groups of the header before, none of which is due.)
//
// If the journal cannot be appended to (a full disk), it is cut back and nothing has happened. If a sync or a
// checkpoint fails nobody knows what is on disk: reads go on, changes are refused until the table is opened anew.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "evenbins/disk.hpp"
#include "evenbins/format.hpp"
#include "evenbins/spec.hpp"

namespace evenbins {

using PageImage = std::unique_ptr<uint8_t[]>;

class PageStore {
 public:
  static constexpr uint64_t kHeaderBytes = 4096, kPageHead = 16, kMostPageBytes = 65536;
  static constexpr uint64_t kGroupHead = 48, kJournalLimit = uint64_t{32} << 20;

  struct Head {
    Spec spec{};
    uint64_t uid = 0, generation = 0, stamp = 0, keys = 0;
  };

  // Writes both headers and all pages, empty.
  static void create(Disk& table, const Spec& spec, uint64_t page_bytes, uint64_t pages, uint64_t uid);
  static Head read_head(const Disk& table);

  // `journal` may be closed: then nothing is to be recovered and nothing can be changed.
  // No page, of the file or of the journal, is handed on that says it holds more than `slots` keys.
  PageStore(Disk& table, Disk& journal, Tape& tape, Head head, uint64_t page_bytes, uint64_t pages, uint32_t slots,
            bool durable);

  // Groups of the journal that are not in the pages yet; throws FormatError if it is damaged.
  uint64_t groups_due() const { return read_journal(nullptr); }
  uint64_t recover();  // takes them over, into memory: a checkpoint must follow. How many there were

  const Head& head() const { return head_; }
  uint64_t page_bytes() const { return page_bytes_; }
  uint64_t pages() const { return pages_; }
  uint64_t journal_bytes() const { return journal_end_; }
  uint64_t file_bytes() const { return (2 + pages_) * page_bytes_; }
  bool failed() const { return failed_; }
  bool dirty() const { return journal_end_ != 0 || !overlay_.empty(); }

  // Many threads may read while nobody writes.
  const uint8_t* changed(uint64_t page) const {  // in memory, or null
    const auto found = overlay_.find(page);
    return found == overlay_.end() ? nullptr : found->second.get();
  }
  bool any_changed() const { return !overlay_.empty(); }
  void read(uint64_t page, uint8_t* out) const;                       // checked
  void read_raw(uint64_t first, uint64_t count, uint8_t* out) const;  // from the file, not checked
  // The same if the system has all these pages in its cache; else false, at once (Disk).
  bool read_cached(uint64_t first, uint64_t count, uint8_t* out) const {
    return table_.read_cached((2 + first) * page_bytes_, out, count * page_bytes_);
  }
  void request(uint64_t first, uint64_t count) const { table_.request((2 + first) * page_bytes_, count * page_bytes_); }
  bool knows_cache() const { return table_.knows_cache(); }
  // FormatError names the page. All that is in memory has passed, pages of the journal too: whoever reads so many keys
  // as a page says stays within it.
  void check(uint64_t page, const uint8_t* image) const;

  using Group = std::unordered_map<uint64_t, PageImage>;
  // All or nothing, without memory too. With journal = false straight into the file: for a table that is being built
  // and has no name yet.
  void commit(Group group, bool journal);
  void checkpoint(uint64_t keys);  // keys in the table, for the header. No memory: nothing has happened

 private:
  void seal(uint64_t page, uint8_t* image) const;
  uint64_t read_journal(Group* into) const;
  // The pages of a group in the order of the file, and a buffer for as many as are written at once.
  struct Writes {
    std::vector<uint64_t> order;
    std::vector<uint8_t> buffer;
  };
  Writes writes_of(const Group& group) const;
  void write_pages(const Group& group, Writes& writes);  // allocates nothing
  void append(const Group& group);
  uint64_t older_header() const;

  Disk &table_, &journal_;
  Tape& tape_;
  Head head_;
  uint64_t page_bytes_, pages_;
  uint32_t slots_;
  bool durable_, failed_ = false;
  uint64_t journal_end_ = 0, sequence_ = 0;
  bool synced_ = true;  // the journal, up to its end
  Group overlay_;
};

inline uint32_t page_count(const uint8_t* image) {
  uint32_t count;
  std::memcpy(&count, image + 8, 4);
  return count;
}

}  // namespace evenbins
