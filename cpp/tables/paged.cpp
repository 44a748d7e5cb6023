#include "evenbins/paged.hpp"

#include <exception>
#include <unordered_set>

#include "evenbins/xxh3.hpp"

namespace evenbins {
namespace {

constexpr char kSummaryMagic[8] = {'E', 'V', 'B', 'S', 'U', 'M', 'M', '1'};
constexpr size_t kCoreHead = 6, kBatch = 1024, kFewWords = 256;

std::atomic<int> this_process = [] {
  platform::at_fork(nullptr, nullptr, [] { this_process = platform::process_id(); });
  return platform::process_id();
}();

struct SummaryFields {
  char magic[8];
  uint64_t uid, stamp, keys, pages;
};

// By the top bits of each word, 16 … 63: a few passes of counting, stable.
void sort_by_page(std::vector<uint64_t>& words, uint64_t pages, uint32_t shift) {
  if (words.size() < kFewWords) return std::sort(words.begin(), words.end());  // what is below `shift` ascends
  std::vector<uint64_t> other(words.size());
  constexpr uint32_t kDigit = 11;
  for (uint32_t bit = 0; bit < 64 && (pages - 1) >> bit != 0; bit += kDigit) {
    size_t starts[(1 << kDigit) + 1] = {};
    const auto digit = [&](uint64_t w) { return (w >> (shift + bit)) & ((1 << kDigit) - 1); };
    for (const uint64_t w : words) ++starts[digit(w) + 1];
    for (size_t i = 0; i < size_t{1} << kDigit; ++i) starts[i + 1] += starts[i];
    for (const uint64_t w : words) other[starts[digit(w)]++] = w;
    words.swap(other);
  }
}

}  // namespace

int process_id() { return this_process.load(std::memory_order_relaxed); }

PagedShape PagedShape::of(const Spec& spec) {
  const auto& core = spec.core;
  if (spec.capacity < 1 || spec.capacity > uint64_t{1} << 48) throw SpecError("capacity must be 1 … 2^48");
  if (core.size() < kCoreHead + 1 || core.size() > kCoreHead + 8)
    throw SpecError("a table in pages has six numbers in its core and one for each of 1 … 8 levels");
  if (!is_key_type(core[0]) || !is_value_type(core[1])) throw SpecError("no such type of keys or values");
  if (core[2] < 4096 || core[2] > PageStore::kMostPageBytes || (core[2] & (core[2] - 1)) != 0)
    throw SpecError("page_bytes must be a power of two, 4096 … 65536");
  if (core[3] > 8) throw SpecError("there may be 0 … 8 overflow pages");
  if (core[4] < 1 || core[4] > 4096) throw SpecError("blocks for each page must be 1 … 4096");
  if (core[5] < 1 || core[5] > kMaxBlockedHashes) throw SpecError("hashes must be 1 … 32");
  PagedShape shape{static_cast<KeyType>(core[0]),
                   static_cast<ValueType>(core[1]),
                   core[2],
                   core[3],
                   core[4],
                   static_cast<uint32_t>(core[5]),
                   0,
                   0,
                   {core.begin() + kCoreHead, core.end()},
                   core[3]};
  shape.words = key_words(shape.key_type);
  shape.slots = static_cast<uint32_t>((shape.page_bytes - PageStore::kPageHead) / (8 * (shape.words + 1)));
  for (const uint64_t pages : shape.pages) {
    if (pages < 1 || pages > uint64_t{1} << 36) throw SpecError("a level must have 1 … 2^36 pages");
    shape.total_pages += pages;
  }
  return shape;
}

void PagedTable::create(Descriptor& file, const std::string& path, const Spec& spec, uint64_t uid) {
  const PagedShape shape = PagedShape::of(spec);
  Tape tape;
  Disk disk(file, path, &tape, 0);
  PageStore::create(disk, spec, shape.page_bytes, shape.total_pages, uid);
  disk.sync();
}

namespace {

PagedShape shape_of(const Spec& spec) {
  try {
    return PagedShape::of(spec);
  } catch (const SpecError& error) {
    throw FormatError(std::string("the header describes no possible table: ") + error.what());
  }
}

}  // namespace

PagedTable::PagedTable(Descriptor& table, Descriptor& journal, const std::string& path, bool writable, bool durable)
    : table_disk_(table, path, &tape_, 0),
      journal_disk_(journal, path + ".journal", &tape_, 1),
      store_([&]() -> PageStore {
        PageStore::Head head = PageStore::read_head(table_disk_);
        const PagedShape shape = shape_of(head.spec);
        return {table_disk_,      journal_disk_,     tape_,       std::move(head),
                shape.page_bytes, shape.total_pages, shape.slots, durable};
      }()),
      shape_(shape_of(store_.head().spec)),
      hash_(shape_.key_type, store_.head().spec.seed),
      writable_(writable),
      with_journal_(journal_disk_.is_open()),
      counts_(shape_.total_pages, 0) {
  uint64_t first = 0;
  for (const uint64_t pages : shape_.pages) {
    first_of_.push_back(first);
    first += pages;
  }
  first_of_.push_back(first);
  const uint64_t listed = (shape_.total_pages - shape_.pages[0]) * shape_.slots / 2;
  summary_ = std::make_unique<PagedBloomSummary>(shape_.pages[0], shape_.blocks_per_page, shape_.hashes, listed);
}

void PagedTable::close() {
  if (writable_ && is_open() && is_own()) platform::unlock_file(table_disk_.descriptor());
  table_disk_.close();
  journal_disk_.close();
}

// ---- the summary --------------------------------------------------------------------------------------------

std::vector<uint64_t> PagedTable::digests_of(const uint8_t* image) const {
  std::vector<uint64_t> digests(page_count(image));
  for (uint32_t i = 0; i < digests.size(); ++i) digests[i] = hash_.digest(key_at(image, i));
  return digests;
}

// f(code, page, image), in the order of pages.
template <typename F>
void PagedTable::each_page(const Pulse* pulse, F&& f) const {
  const uint64_t step = std::clamp<uint64_t>((uint64_t{1} << 20) / shape_.page_bytes, 1, shape_.total_pages);
  std::vector<uint8_t> buffer(step * shape_.page_bytes);
  uint8_t code = 1;
  for (uint64_t first = 0; first < shape_.total_pages; first += step) {
    if (pulse != nullptr && !(*pulse)()) return;
    const uint64_t n = std::min(step, shape_.total_pages - first);
    store_.read_raw(first, n, buffer.data());
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t page = first + i;
      while (code <= shape_.levels() && page >= first_of_[code]) ++code;
      const uint8_t here =
          code <= shape_.levels() ? code : static_cast<uint8_t>(shape_.levels() + 1 + page - first_of_.back());
      const uint8_t* image = store_.changed(page);
      if (image == nullptr) {
        image = buffer.data() + i * shape_.page_bytes;
        store_.check(page, image);
      }
      f(here, page, image);
    }
  }
}

bool PagedTable::recover() {
  if (store_.recover() == 0) return false;
  build_summary([] { return true; });
  checkpoint();
  return true;
}

void PagedTable::build_summary(const Pulse& pulse) {
  summary_->clear();
  keys_ = 0;
  each_page(&pulse, [&](uint8_t code, uint64_t page, const uint8_t* image) {
    const std::vector<uint64_t> digests = digests_of(image);
    for (const uint64_t digest : digests)
      if (page_of(digest, code) != page)
        throw FormatError("page " + std::to_string(page) + " holds a key that does not belong there");
    summary_->add_many(digests.data(), digests.size(), code);
    counts_[page] = static_cast<uint16_t>(digests.size());
    keys_ += digests.size();
  });
}

std::vector<uint8_t> PagedTable::summary_file() const {
  std::vector<uint8_t> out;
  SummaryFields fields{};
  std::memcpy(fields.magic, kSummaryMagic, 8);
  fields.uid = store_.head().uid;
  fields.stamp = store_.head().stamp;
  fields.keys = keys_;
  fields.pages = shape_.total_pages;
  out.reserve(sizeof fields + 2 * counts_.size() + summary_->bytes() + 64);
  const auto put = [&](const void* data, size_t n) {
    const auto* p = static_cast<const uint8_t*>(data);
    out.insert(out.end(), p, p + n);
  };
  put(&fields, sizeof fields);
  put(counts_.data(), 2 * counts_.size());
  summary_->write(out);
  const uint64_t checksum = xxh3_64(out.data(), out.size(), 0);
  put(&checksum, 8);
  return out;
}

bool PagedTable::read_summary(const uint8_t* data, uint64_t size) {
  SummaryFields fields;
  const uint64_t least = sizeof fields + 2 * counts_.size() + 8;
  if (size < least) return false;
  std::memcpy(&fields, data, sizeof fields);
  uint64_t checksum;
  std::memcpy(&checksum, data + size - 8, 8);
  if (std::memcmp(fields.magic, kSummaryMagic, 8) != 0 || fields.uid != store_.head().uid ||
      fields.stamp != store_.head().stamp || fields.pages != shape_.total_pages ||
      checksum != xxh3_64(data, size - 8, 0))
    return false;
  std::memcpy(counts_.data(), data + sizeof fields, 2 * counts_.size());
  keys_ = 0;
  for (const uint16_t count : counts_) {
    if (count > shape_.slots) return false;
    keys_ += count;
  }
  return keys_ == fields.keys && summary_->read(data + least - 8, size - least, shape_.codes());
}

// ---- look-ups -------------------------------------------------------------------------------------------------

uint32_t PagedTable::slot_of(const uint8_t* image, const StoredKey& key) const {
  const uint32_t count = std::min(page_count(image), shape_.slots);
  const uint32_t slot = kernel().find_key(keys_of(image), shape_.words, count, key.low, key.high);
  return slot == count ? shape_.slots : slot;
}

const uint8_t* PagedTable::look(uint64_t page, uint8_t* buffer) const {
  if (const uint8_t* image = store_.changed(page)) return image;
  store_.read_raw(page, 1, buffer);
  store_.check(page, buffer);
  fetched_.fetch_add(1, std::memory_order_relaxed);
  return buffer;
}

bool PagedTable::find(const StoredKey& key, uint64_t& value) const {
  const uint64_t digest = hash_.digest(key);
  const Candidates where = summary_->candidates(digest);
  alignas(64) uint8_t buffer[PageStore::kMostPageBytes];
  for (uint32_t i = 0; i < where.count; ++i) {
    const uint8_t* image = look(page_of(digest, where.codes[i]), buffer);
    const uint32_t slot = slot_of(image, key);
    if (slot == shape_.slots) continue;
    value = values_of(image)[slot];
    found_.fetch_add(1, std::memory_order_relaxed);
    found_reads_.fetch_add(i + 1, std::memory_order_relaxed);
    wrong_.fetch_add(i, std::memory_order_relaxed);
    return true;
  }
  missed_.fetch_add(1, std::memory_order_relaxed);
  missed_reads_.fetch_add(where.count, std::memory_order_relaxed);
  return false;
}

PagedTable::Probe PagedTable::probe(const StoredKey& key) const {
  const uint64_t digest = hash_.digest(key);
  const Candidates where = summary_->candidates(digest);
  alignas(64) uint8_t buffer[PageStore::kMostPageBytes];
  for (uint32_t i = 0; i < where.count; ++i)
    if (slot_of(look(page_of(digest, where.codes[i]), buffer), key) != shape_.slots) return {where.codes[i], i + 1};
  return {0, where.count};
}

uint64_t PagedTable::get_many(const uint64_t* keys, uint64_t n, uint64_t missing, uint64_t* values, uint8_t* found,
                              const Reads& reads, const Pulse& pulse) const {
  constexpr uint32_t kIndexBits = 20;
  constexpr uint64_t kPart = uint64_t{1} << kIndexBits;
  std::vector<uint64_t> own;     // the part's keys, read once
  std::vector<uint64_t> wanted;  // page │ index in this part
  std::vector<uint64_t> digests(kBatch);
  std::vector<uint8_t> codes(kBatch);
  struct Run {
    size_t from, to;  // of wanted
  };
  std::vector<Run> runs;
  for (uint64_t start = 0; start < n; start += kPart) {
    if (!pulse()) return start;
    const uint64_t part = std::min(kPart, n - start);
    own.assign(keys + start * shape_.words, keys + (start + part) * shape_.words);
    wanted.clear();
    uint64_t absent = 0;
    for (uint64_t b = 0; b < part; b += kBatch) {
      const size_t m = std::min<uint64_t>(kBatch, part - b);
      hash_.digests(kernel(), own.data() + b * shape_.words, m, digests.data());
      summary_->first_candidates(digests.data(), m, codes.data());
      for (size_t i = 0; i < m; ++i) {
        found[start + b + i] = 0;
        if (values != nullptr) values[start + b + i] = missing;
        if (codes[i] != 0)
          wanted.push_back(page_of(digests[i], codes[i]) << kIndexBits | (b + i));
        else
          ++absent;
      }
    }
    missed_.fetch_add(absent, std::memory_order_relaxed);
    sort_by_page(wanted, shape_.total_pages, kIndexBits);
    runs.clear();
    for (size_t i = 0; i < wanted.size();) {
      const uint64_t first = wanted[i] >> kIndexBits;
      uint64_t last = first;
      size_t j = i + 1;
      for (; j < wanted.size(); ++j) {
        const uint64_t page = wanted[j] >> kIndexBits;
        if (page > last + 1 + kGap || page >= first + kRunPages) break;
        last = page;
      }
      runs.push_back({i, j});
      i = j;
    }
    const auto pages_of = [&](uint64_t number) -> PageRun {
      const uint64_t first = wanted[runs[number].from] >> kIndexBits;
      return {first, (wanted[runs[number].to - 1] >> kIndexBits) - first + 1};
    };
    const auto look_in = [&](uint64_t number, const uint8_t* pages) {
      const Run run = runs[number];
      const auto [first, count] = pages_of(number);
      fetched_.fetch_add(count, std::memory_order_relaxed);
      uint64_t checked = ~uint64_t{0}, hits = 0;
      const uint8_t* image = nullptr;
      for (size_t i = run.from; i < run.to; ++i) {
        const uint64_t page = wanted[i] >> kIndexBits, index = start + (wanted[i] & (kPart - 1));
        if (page != checked) {
          checked = page;
          image = store_.changed(page);
          if (image == nullptr) {
            image = pages + (page - first) * shape_.page_bytes;
            store_.check(page, image);
          }
        }
        const uint64_t* words = own.data() + (index - start) * shape_.words;
        const StoredKey key{words[0], shape_.words == 2 ? words[1] : 0};
        const uint32_t slot = slot_of(image, key);
        if (slot != shape_.slots) {
          found[index] = 1;
          if (values != nullptr) values[index] = values_of(image)[slot];
          ++hits;
          continue;
        }
        uint64_t value;  // not where the summary said first: look everywhere it may be, and count that
        if (summary_->candidates(hash_.digest(key)).count > 1) {
          found[index] = find(key, value) ? 1 : 0;
          if (found[index] && values != nullptr) values[index] = value;
        } else {
          missed_.fetch_add(1, std::memory_order_relaxed);
          missed_reads_.fetch_add(1, std::memory_order_relaxed);
        }
      }
      found_.fetch_add(hits, std::memory_order_relaxed);
      found_reads_.fetch_add(hits, std::memory_order_relaxed);
    };
    if (!read_runs(store_, runs.size(), reads, pulse, pages_of, look_in)) return start;
  }
  return n;
}

size_t PagedTable::scan(Position& position, size_t most, uint64_t* keys, uint64_t* values) const {
  alignas(64) uint8_t buffer[PageStore::kMostPageBytes];
  size_t done = 0;
  while (position.page < shape_.total_pages && done < most) {
    if (counts_[position.page] <= position.index) {
      position = {position.page + 1, 0};
      continue;
    }
    const uint8_t* image = look(position.page, buffer);
    const size_t n = std::min<size_t>(most - done, counts_[position.page] - position.index);
    std::copy_n(keys_of(image) + position.index * shape_.words, n * shape_.words, keys + done * shape_.words);
    std::copy_n(values_of(image) + position.index, n, values + done);
    done += n;
    position.index += n;
  }
  return done;
}

// ---- changes ----------------------------------------------------------------------------------------------------

PagedTable::Staged& PagedTable::stage(uint64_t page) {
  const auto found = staged_.find(page);
  if (found != staged_.end()) return found->second;
  PageImage image(new uint8_t[shape_.page_bytes]);
  if (const uint8_t* changed = store_.changed(page)) {
    std::memcpy(image.get(), changed, shape_.page_bytes);
  } else {
    store_.read_raw(page, 1, image.get());
    store_.check(page, image.get());
  }
  const uint32_t count = page_count(image.get());
  return staged_.emplace(page, Staged{std::move(image), count, false}).first->second;
}

void PagedTable::prefetch(const std::vector<uint64_t>& pages, const Reads& reads) {
  std::vector<std::pair<uint64_t, Staged*>> wanted;  // ascending
  wanted.reserve(pages.size());
  for (const uint64_t page : pages) {
    if (staged_.count(page) != 0 || store_.changed(page) != nullptr) continue;
    wanted.emplace_back(page, &staged_.emplace(page, Staged{nullptr, counts_[page], false}).first->second);
  }
  std::vector<size_t> starts;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (starts.empty() || wanted[i].first != wanted[i - 1].first + 1 || i - starts.back() >= kRunPages)
      starts.push_back(i);
  starts.push_back(wanted.size());
  read_runs(
      store_, starts.size() - 1, reads, [] { return true; },
      [&](uint64_t number) -> PageRun { return {wanted[starts[number]].first, starts[number + 1] - starts[number]}; },
      [&](uint64_t number, const uint8_t* image) {
        for (size_t i = starts[number]; i < starts[number + 1]; ++i, image += shape_.page_bytes) {
          store_.check(wanted[i].first, image);
          Staged& staged = *wanted[i].second;
          staged.image.reset(new uint8_t[shape_.page_bytes]);
          std::memcpy(staged.image.get(), image, shape_.page_bytes);
          staged.old_count = page_count(image);
        }
      });
}

void PagedTable::append(uint64_t page, uint8_t code, const StoredKey& key, uint64_t digest, uint64_t value) {
  Staged& staged = stage(page);
  undo_.push_back({digest, code, true});
  try {
    summary_->add(digest, code);
  } catch (...) {  // not added: not to be undone
    undo_.pop_back();
    throw;
  }
  staged.dirty = true;
  uint8_t* image = staged.image.get();
  const uint32_t at = counts_[page];
  uint64_t* k = keys_of(image) + uint64_t{at} * shape_.words;
  k[0] = key.low;
  if (shape_.words == 2) k[1] = key.high;
  values_of(image)[at] = value;
  const uint32_t count = at + 1;
  std::memcpy(image + 8, &count, 4);
  counts_[page] = static_cast<uint16_t>(count);
  ++keys_;
}

PagedTable::Outcome PagedTable::stage_insert(const StoredKey& key, uint64_t digest, uint64_t value) {
  const Candidates where = summary_->candidates(digest);
  for (uint32_t i = 0; i < where.count; ++i) {
    Staged& staged = stage(page_of(digest, where.codes[i]));
    const uint32_t slot = slot_of(staged.image.get(), key);
    if (slot == shape_.slots) continue;
    staged.dirty = true;
    values_of(staged.image.get())[slot] = value;
    return Outcome::changed;
  }
  for (uint32_t code = 1; code <= shape_.codes(); ++code) {
    const uint64_t page = page_of(digest, static_cast<uint8_t>(code));
    if (counts_[page] >= shape_.slots) continue;
    append(page, static_cast<uint8_t>(code), key, digest, value);
    return Outcome::stored;
  }
  return Outcome::full;
}

bool PagedTable::stage_erase(const StoredKey& key, uint64_t digest) {
  const Candidates where = summary_->candidates(digest);
  for (uint32_t i = 0; i < where.count; ++i) {
    const uint8_t code = where.codes[i];
    const uint64_t page = page_of(digest, code);
    Staged& staged = stage(page);
    uint8_t* image = staged.image.get();
    const uint32_t slot = slot_of(image, key);
    if (slot == shape_.slots) continue;
    to_refresh_.push_back(page_of(digest, 1));
    undo_.push_back({digest, code, false});
    summary_->remove(digest, code);
    staged.dirty = true;
    const uint32_t last = page_count(image) - 1;
    uint64_t *k = keys_of(image), *v = values_of(image);
    for (uint32_t w = 0; w < shape_.words; ++w) {
      k[uint64_t{slot} * shape_.words + w] = k[uint64_t{last} * shape_.words + w];
      k[uint64_t{last} * shape_.words + w] = 0;
    }
    v[slot] = v[last];
    v[last] = 0;
    std::memcpy(image + 8, &last, 4);
    counts_[page] = static_cast<uint16_t>(last);
    --keys_;
    return true;
  }
  return false;
}

// Needs no memory: in reverse order the list is never longer than it was.
void PagedTable::roll_back() {
  for (auto step = undo_.rbegin(); step != undo_.rend(); ++step) {
    if (step->added)
      summary_->remove(step->digest, step->code);  // its bits of B0 stay: harmless
    else
      summary_->add(step->digest, step->code);
  }
  for (const auto& [page, staged] : staged_) counts_[page] = static_cast<uint16_t>(staged.old_count);
  keys_ = keys_before_;
  staged_.clear();
  undo_.clear();
  to_refresh_.clear();
}

void PagedTable::commit() {
  PageStore::Group group;
  for (auto& [page, staged] : staged_)
    if (staged.dirty) group.emplace(page, std::move(staged.image));
  store_.commit(std::move(group), with_journal_);
  staged_.clear();  // the changed ones lie in the store now
  undo_.clear();
  keys_before_ = keys_;
  std::sort(to_refresh_.begin(), to_refresh_.end());
  to_refresh_.erase(std::unique(to_refresh_.begin(), to_refresh_.end()), to_refresh_.end());
  try {
    for (const uint64_t page : to_refresh_) {
      const std::vector<uint64_t> digests = digests_of(stage(page).image.get());
      summary_->refresh(page, digests.data(), digests.size());
    }
  } catch (const std::exception&) {  // a page that cannot be read: bits too many stay, which costs reads alone
  }
  staged_.clear();
  to_refresh_.clear();
  if (store_.journal_bytes() < PageStore::kJournalLimit) return;
  try {
    checkpoint();
  } catch (const std::bad_alloc&) {  // nothing has changed: the next group tries again
  }
}

PagedTable::Outcome PagedTable::insert(const StoredKey& key, uint64_t value) {
  keys_before_ = keys_;
  try {
    const Outcome outcome = stage_insert(key, hash_.digest(key), value);
    if (outcome == Outcome::full)
      roll_back();
    else
      commit();
    return outcome;
  } catch (...) {
    roll_back();
    throw;
  }
}

bool PagedTable::erase(const StoredKey& key) {
  keys_before_ = keys_;
  try {
    const bool was_there = stage_erase(key, hash_.digest(key));
    if (was_there)
      commit();
    else
      roll_back();
    return was_there;
  } catch (...) {
    roll_back();
    throw;
  }
}

// change(key, digest, value): 1 if the number of keys has changed, 0 if not, −1 if the table is full.
template <typename F>
PagedTable::Progress PagedTable::in_groups(const uint64_t* keys, const uint64_t* values, uint64_t n, const Reads& reads,
                                           const Pulse& pulse, F&& change) {
  constexpr uint32_t kIndexBits = 22;
  Progress progress{0, 0, false};
  std::vector<uint64_t> own_keys, own_values;  // the chunk, read once
  std::vector<uint64_t> order, pages, digests(kBatch);
  keys_before_ = keys_;
  for (uint64_t start = 0; start < n; start += kChunk) {
    const uint64_t part = std::min(kChunk, n - start);
    own_keys.assign(keys + start * shape_.words, keys + (start + part) * shape_.words);
    if (values != nullptr) own_values.assign(values + start, values + start + part);
    order.resize(part);
    for (uint64_t b = 0; b < part; b += kBatch) {
      const size_t m = std::min<uint64_t>(kBatch, part - b);
      hash_.digests(kernel(), own_keys.data() + b * shape_.words, m, digests.data());
      for (size_t i = 0; i < m; ++i) order[b + i] = page_of(digests[i], 1) << kIndexBits | (b + i);
    }
    sort_by_page(order, shape_.pages[0], kIndexBits);
    for (uint64_t at = 0; at < part;) {
      if (!pulse()) return progress;
      pages.clear();
      uint64_t end = at;
      for (; end < part; ++end) {
        const uint64_t page = order[end] >> kIndexBits;
        if (!pages.empty() && pages.back() == page) continue;
        if (pages.size() == kGroupBytes / shape_.page_bytes) break;
        pages.push_back(page);
      }
      uint64_t changed = 0, done = at;
      try {
        if (end - at > 1) prefetch(pages, reads);
        for (; done < end; ++done) {
          const uint64_t index = order[done] & (kChunk - 1);
          const uint64_t* words = own_keys.data() + index * shape_.words;
          const StoredKey key{words[0], shape_.words == 2 ? words[1] : 0};
          const int outcome = change(key, hash_.digest(key), values == nullptr ? 0 : own_values[index]);
          if (outcome < 0) {
            progress.full = true;
            break;
          }
          changed += static_cast<uint64_t>(outcome);
        }
        commit();
      } catch (...) {
        roll_back();
        throw;
      }
      progress.done += done - at;
      progress.changed += changed;
      if (progress.full) return progress;
      at = end;
    }
  }
  return progress;
}

PagedTable::Progress PagedTable::insert_many(const uint64_t* keys, const uint64_t* values, uint64_t n,
                                             const Reads& reads, const Pulse& pulse) {
  return in_groups(keys, values, n, reads, pulse, [&](const StoredKey& key, uint64_t digest, uint64_t value) {
    const Outcome outcome = stage_insert(key, digest, value);
    return outcome == Outcome::full ? -1 : outcome == Outcome::stored ? 1 : 0;
  });
}

PagedTable::Progress PagedTable::erase_many(const uint64_t* keys, uint64_t n, const Reads& reads, const Pulse& pulse) {
  return in_groups(keys, nullptr, n, reads, pulse,
                   [&](const StoredKey& key, uint64_t digest, uint64_t) { return stage_erase(key, digest) ? 1 : 0; });
}

// ---- the whole ----------------------------------------------------------------------------------------------------

PagedTable::Counters PagedTable::counters() const {
  return {found_, found_reads_, missed_, missed_reads_, wrong_, fetched_};
}

std::vector<uint64_t> PagedTable::level_keys() const {
  std::vector<uint64_t> out;
  for (size_t i = 0; i < first_of_.size(); ++i) {
    const uint64_t end = i + 1 < first_of_.size() ? first_of_[i + 1] : shape_.total_pages;
    out.push_back(0);
    for (uint64_t page = first_of_[i]; page < end; ++page) out.back() += counts_[page];
  }
  return out;
}

std::string PagedTable::check() const {
  std::string broken;
  uint64_t keys = 0;
  std::unordered_set<uint64_t> seen;
  each_page(nullptr, [&](uint8_t code, uint64_t page, const uint8_t* image) {
    if (!broken.empty()) return;
    const std::vector<uint64_t> digests = digests_of(image);
    const std::string name = "page " + std::to_string(page);
    keys += digests.size();
    if (digests.size() != counts_[page]) broken = name + ": its count is not the one in memory";
    for (const uint64_t digest : digests) {
      if (page_of(digest, code) != page) broken = name + ": a key does not belong there";
      const Candidates where = summary_->candidates(digest);
      if (std::find(where.codes, where.codes + where.count, code) == where.codes + where.count)
        broken = name + ": the summary does not know a key's level";
      if (shape_.words == 1 && !seen.insert(digest).second && shape_.key_type != KeyType::digest)
        broken = name + ": a key is there twice";
    }
    for (const uint8_t* p = image + PageStore::kPageHead + 8 * digests.size() * shape_.words;
         p < reinterpret_cast<const uint8_t*>(values_of(image)); ++p)
      if (*p != 0) broken = name + ": a free slot is not zero";
  });
  if (broken.empty() && keys != keys_) broken = "the number of keys is wrong";
  return broken;
}

// A table in pages is a file of its own format (page_store.hpp): it has no payload that could be loaded.
extern constinit const KindRow kPagedKind = {
    .kind = Kind::paged,
    .name = "paged-table",
    .payload_bytes = [](const Spec&) -> uint64_t {
      throw SpecError("a table in pages is opened by PagedTable.open, or MultilevelTable.open");
    },
    .other_format = "a table in pages: use evenbins.PagedTable.open",
};

}  // namespace evenbins
