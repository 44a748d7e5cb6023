// The one-read table (13): its file, its journal, its summary's file; each patched, cut, and sealed again.
//
//     input   shape │ keys │ what to seal │ patches: [file, length][place, 2 bytes][bytes] …
//
// A file of pages is large and mostly zero, so an input is a recipe: a small table as the library writes it (left by a
// process that died, so that its journal has groups), then patches. Checksums that the recipe names are made right.
#include "evenbins/paged.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

constexpr uint64_t kUid = 0x1122334455667788, kStamp = 0x0102030405060708, kPage = 4096;
const PagedTable::Pulse kGoOn = [] { return true; };

struct Files {
  File table, journal, summary;
};

int memory(const File& content) {
  const int descriptor = ::memfd_create("evenbins", MFD_CLOEXEC);
  require(descriptor >= 0, "no file in memory");
  size_t at = 0;
  while (at < content.size()) {
    const ssize_t n = ::pwrite(descriptor, content.data() + at, content.size() - at, static_cast<off_t>(at));
    require(n > 0, "no room in memory");
    at += static_cast<size_t>(n);
  }
  return descriptor;
}

File content(int descriptor) {
  File all(static_cast<size_t>(::lseek(descriptor, 0, SEEK_END)));
  require(::pread(descriptor, all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()), "cannot read");
  return all;
}

void seal_header(File& table, size_t at) {
  if (table.size() >= at + kPage) set<uint64_t>(table, at + kPage - 8, xxh3_64(table.data() + at, kPage - 8, 0));
}
void seal_page(File& file, size_t at, uint64_t page, uint64_t uid) {
  if (file.size() >= at + kPage) set<uint64_t>(file, at, xxh3_64(file.data() + at + 8, kPage - 8, splitmix(uid, page)));
}
void seal_journal(File& journal, uint64_t uid, bool pages_too) {
  size_t at = 0;
  while (at + 48 <= journal.size()) {
    const auto number = get<uint64_t>(journal, at + 16), pages = get<uint64_t>(journal, at + 24);
    set<uint64_t>(journal, at + 40, xxh3_64(journal.data() + at, 40, 0));
    if (pages > 64 || at + 48 + pages * (8 + kPage) + 8 > journal.size()) return;
    const size_t body = at + 48, bytes = pages * (8 + kPage);
    for (uint64_t i = 0; pages_too && i < pages; ++i)
      seal_page(journal, body + 8 * pages + i * kPage, get<uint64_t>(journal, body + 8 * i), uid);
    set<uint64_t>(journal, body + bytes, xxh3_64(journal.data() + body, bytes, number));
    at = body + bytes + 8;
  }
}

constexpr uint64_t kSizes[] = {0, 1, 2, 7, 50, 150, 300, 600};

const Files& made(uint8_t shape, uint8_t size) {
  const uint64_t keys = kSizes[size];
  static std::map<std::pair<uint8_t, uint8_t>, Files> templates;
  const auto known = templates.find({shape, size});
  if (known != templates.end()) return known->second;
  std::vector<uint64_t> core{1u + shape % 3, 1, kPage, shape / 3u % 3, 1u + shape / 9u % 2, 1u + shape / 18u % 8};
  for (uint32_t i = 0; i < 1 + shape % 2u; ++i) core.push_back(2 - i);
  const Spec spec{Kind::paged, Hashing::independent, shape, 500, core};
  const int table = ::memfd_create("evenbins", MFD_CLOEXEC), journal = ::memfd_create("evenbins", MFD_CLOEXEC);
  Descriptor first(::dup(table)), second(::dup(table)), third(::dup(journal));
  PagedTable::create(first, "t", spec, kUid);
  Files files;
  {
    PagedTable fresh(second, third, "t", true, false);
    fresh.build_summary(kGoOn);
    const uint32_t words = key_words(fresh.key_type());
    std::vector<uint64_t> all, values;
    for (uint64_t i = 0; i < keys * words; ++i) all.push_back(splitmix(7, i));
    for (uint64_t i = 0; i < keys; ++i) values.push_back(i);
    fresh.insert_many(all.data(), values.data(), keys, {1, 1}, kGoOn);
    fresh.checkpoint();
    files.summary = fresh.summary_file();
    for (uint64_t i = 0; i < size % 4u; ++i) fresh.insert({splitmix(9, i), words == 2 ? i : 0}, i);
    files.table = content(table);
    files.journal = content(journal);
  }
  ::close(table);
  ::close(journal);
  for (const size_t header : {size_t{0}, size_t{kPage}}) {  // the same in every run
    set<uint64_t>(files.table, header + 64, kStamp);
    seal_header(files.table, header);
  }
  set<uint64_t>(files.summary, 16, kStamp);
  set<uint64_t>(files.summary, files.summary.size() - 8, xxh3_64(files.summary.data(), files.summary.size() - 8, 0));
  return templates[{shape, size}] = files;
}

enum Seal : uint8_t { kHeaders = 1, kPages = 2, kJournal = 4, kSummary = 8, kNoSummary = 16, kReadOnly = 32 };

Files patched(const uint8_t* data, size_t size) {
  const uint8_t seal = data[2];
  Files files = made(data[0] % 36, data[1] % 8);
  for (size_t at = 3; at + 3 <= size;) {
    File& file = data[at] % 4 == 0 ? files.table : data[at] % 4 == 1 ? files.journal : files.summary;
    const size_t length = data[at] >> 3;
    size_t place = data[at + 1] | data[at + 2] << 8;
    if (data[at] % 4 == 3) {  // cut, or made longer
      File& any = length % 3 == 0 ? files.table : length % 3 == 1 ? files.journal : files.summary;
      any.resize(std::min<size_t>(place, 1 << 16));
      at += 3;
      continue;
    }
    if ((data[at] & 4) != 0) place = place % 32 * 8 + place / 32 * kPage;  // near the beginning of a page
    at += 3;
    for (size_t i = 0; i < length && at < size; ++i, ++at)
      if (place + i < file.size()) file[place + i] = data[at];
  }
  const uint64_t uid = files.table.size() >= 56 ? get<uint64_t>(files.table, 48) : kUid;
  if ((seal & kHeaders) != 0)
    for (const size_t header : {size_t{0}, size_t{kPage}}) seal_header(files.table, header);
  if ((seal & kPages) != 0)
    for (uint64_t page = 0; (3 + page) * kPage <= files.table.size(); ++page)
      seal_page(files.table, (2 + page) * kPage, page, uid);
  if ((seal & kJournal) != 0) seal_journal(files.journal, uid, (seal & kPages) != 0);
  if ((seal & kSummary) != 0 && files.summary.size() >= 8)
    set<uint64_t>(files.summary, files.summary.size() - 8, xxh3_64(files.summary.data(), files.summary.size() - 8, 0));
  return files;
}

std::vector<uint64_t> some_keys(uint32_t words, Dice& dice) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 8 * words; ++i) keys.push_back(splitmix(7, i));  // as `made` has them
  for (uint64_t i = 0; i < 8 * words; ++i) keys.push_back(dice.word());
  return keys;
}

void look(const PagedTable& table, Dice& dice) {
  const uint32_t words = key_words(table.key_type());
  const std::vector<uint64_t> keys = some_keys(words, dice);
  uint64_t values[16], value;
  uint8_t found[16];
  table.get_many(keys.data(), 16, 7, values, found, {1, 1}, kGoOn);
  for (size_t i = 0; i < 16; ++i) {
    const StoredKey key{keys[words * i], words == 2 ? keys[2 * i + 1] : 0};
    const bool is_in = table.find(key, value);
    require(is_in == (found[i] != 0) && (!is_in || value == values[i]), "one key and many keys get different answers");
    require(!is_in || table.may_contain(key), "the summary misses a key");
    table.probe(key);
  }
  PagedTable::Position position{0, 0};
  std::vector<uint64_t> page(words * 64), all(64);
  while (table.scan(position, 64, page.data(), all.data()) != 0) {
  }
  table.level_keys();
}

void change(PagedTable& table, Dice& dice) {
  const uint32_t words = key_words(table.key_type());
  const std::vector<uint64_t> keys = some_keys(words, dice);
  const auto key = [&](size_t i) { return StoredKey{keys[words * i], words == 2 ? keys[2 * i + 1] : 0}; };
  const uint64_t values[16] = {1, 2, 3};
  const PagedTable::Progress put = table.insert_many(keys.data(), values, 16, {1, 1}, kGoOn);
  uint64_t value;
  for (size_t i = 0; i < 16 && !put.full; ++i) require(table.find(key(i), value), "a key that was stored is absent");
  if (const std::string broken = table.check(); !broken.empty()) fail("after insertions: " + broken);
  table.erase_many(keys.data(), 8, {1, 1}, kGoOn);
  for (size_t i = 0; i < 16 && !put.full; ++i)
    require(table.find(key(i), value) == (i >= 8), "a deletion took the wrong keys");
  table.erase(key(9));
  table.insert(key(1), 5);
  require(table.find(key(1), value) ? value == 5 : put.full, "a key that was stored is absent");
  if (dice.below(2) == 0) table.checkpoint();
  if (const std::string broken = table.check(); !broken.empty()) fail("after changes: " + broken);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  Dice dice(data, size);
  use_any_kernel(dice);
  const Files files = patched(data, size);
  const uint8_t how = data[2];
  const bool writable = (how & kReadOnly) == 0;
  bool whole = false;  // read by its pages, not by a summary that may lie
  Descriptor table(memory(files.table)), journal(memory(files.journal));
  const int kept = ::dup(table.number()), kept_journal = ::dup(journal.number());
  try {
    if (!writable) journal.close();
    PagedTable opened(table, journal, "t", writable, false);
    if (writable && opened.recover()) {
      whole = true;
    } else if ((how & kNoSummary) != 0 || !opened.read_summary(files.summary.data(), files.summary.size())) {
      opened.build_summary(kGoOn);
      whole = true;
    }
    if (whole) {
      if (const std::string broken = opened.check(); !broken.empty()) whole = false;  // as open(verify=True)
    }
    look(opened, dice);
    if (writable && whole) {
      change(opened, dice);
      const uint64_t keys = opened.keys();
      opened.close();
      Descriptor same(::dup(kept)), its_journal(::dup(kept_journal));
      PagedTable again(same, its_journal, "t", true, false);
      if (!again.recover()) again.build_summary(kGoOn);
      require(again.keys() == keys && again.check().empty(), "opened again, another table");
    } else if (writable) {  // a table that lies must not take the process with it
      const std::vector<uint64_t> keys = some_keys(key_words(opened.key_type()), dice);
      const uint64_t values[16] = {};
      opened.insert_many(keys.data(), values, 16, {1, 1}, kGoOn);
      opened.erase_many(keys.data(), 16, {1, 1}, kGoOn);
    }
  } catch (const FormatError&) {
    require(!whole, "a table that was read whole is refused afterwards");
  }
  ::close(kept);
  ::close(kept_journal);
  return 0;
}
