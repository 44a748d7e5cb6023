#include "evenbins/page_store.hpp"

#include <random>

#include "evenbins/hash.hpp"
#include "evenbins/xxh3.hpp"

namespace evenbins {
namespace {

constexpr char kMagic[8] = {'E', 'V', 'E', 'N', 'B', 'I', 'N', 'S'};
constexpr char kGroupMagic[8] = {'E', 'V', 'B', 'J', 'R', 'N', 'L', '1'};
constexpr uint64_t kMaxCore = 64;

struct HeadFields {  // the first 80 bytes of a header
  char magic[8];
  uint32_t version, kind, hash_id, hashing;
  uint64_t seed, capacity, core_words, uid, generation, stamp, keys;
};
static_assert(sizeof(HeadFields) == 80);

struct GroupFields {
  char magic[8];
  uint64_t uid, number, pages, stamp_and_synced, checksum;
};
static_assert(sizeof(GroupFields) == PageStore::kGroupHead);

uint64_t random_word() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

std::vector<uint8_t> header_of(const PageStore::Head& head) {
  std::vector<uint8_t> page(PageStore::kHeaderBytes, 0);
  HeadFields fields{};
  std::memcpy(fields.magic, kMagic, 8);
  fields.version = 1;
  fields.kind = static_cast<uint32_t>(head.spec.kind);
  fields.hash_id = 1;
  fields.hashing = static_cast<uint32_t>(head.spec.hashing);
  fields.seed = head.spec.seed;
  fields.capacity = head.spec.capacity;
  fields.core_words = head.spec.core.size();
  fields.uid = head.uid;
  fields.generation = head.generation;
  fields.stamp = head.stamp;
  fields.keys = head.keys;
  std::memcpy(page.data(), &fields, sizeof fields);
  std::memcpy(page.data() + sizeof fields, head.spec.core.data(), 8 * head.spec.core.size());
  const uint64_t checksum = xxh3_64(page.data(), page.size() - 8, 0);
  std::memcpy(page.data() + page.size() - 8, &checksum, 8);
  return page;
}

// False with the reason: this header cannot be believed.
bool parse_header(const uint8_t* page, PageStore::Head& head, std::string& why) {
  HeadFields fields;
  std::memcpy(&fields, page, sizeof fields);
  uint64_t checksum;
  std::memcpy(&checksum, page + PageStore::kHeaderBytes - 8, 8);
  if (std::memcmp(fields.magic, kMagic, 8) != 0) {
    why = "this is not an evenbins file: it does not begin with EVENBINS";
  } else if (fields.version != 1) {
    why = "the file has format version " + std::to_string(fields.version) +
          "; this evenbins reads version 1. Install a newer evenbins, or the file is damaged";
  } else if (fields.kind != static_cast<uint32_t>(Kind::paged)) {
    why = "the file holds another kind of structure (" + std::to_string(fields.kind) + "), no table in pages";
  } else if (checksum != xxh3_64(page, PageStore::kHeaderBytes - 8, 0)) {
    why = "the header's checksum is wrong: the file is damaged";
  } else if (fields.hash_id != 1 || fields.hashing != 1 || fields.core_words == 0 || fields.core_words > kMaxCore) {
    why = "the header describes no possible table";
  } else {
    head.spec = {Kind::paged, Hashing::independent, fields.seed, fields.capacity,
                 std::vector<uint64_t>(fields.core_words)};
    std::memcpy(head.spec.core.data(), page + sizeof fields, 8 * fields.core_words);
    head.uid = fields.uid;
    head.generation = fields.generation;
    head.stamp = fields.stamp;
    head.keys = fields.keys;
    return true;
  }
  return false;
}

}  // namespace

PageStore::Head PageStore::read_head(const Disk& table) {
  std::vector<uint8_t> pages(2 * kHeaderBytes);
  const size_t got = table.read(0, pages.data(), pages.size());
  Head first, second;
  std::string why, why_second;
  if (got < 8 || std::memcmp(pages.data(), kMagic, 8) != 0) {
    // Nothing of ours, unless the first header was torn: then the second tells.
    if (got < pages.size() || std::memcmp(pages.data() + kHeaderBytes, kMagic, 8) != 0)
      throw FormatError("this is not an evenbins file: it does not begin with EVENBINS");
  }
  const bool has_magic = got >= 16 && std::memcmp(pages.data(), kMagic, 8) == 0;
  uint32_t kind = static_cast<uint32_t>(Kind::paged);
  if (has_magic) std::memcpy(&kind, pages.data() + 12, 4);
  if (kind != static_cast<uint32_t>(Kind::paged) && !parse_header(pages.data() + kHeaderBytes, second, why_second))
    throw FormatError("the file holds another kind of structure (" + std::to_string(kind) + "), no table in pages");
  if (got < pages.size()) throw FormatError("the file ends within its header");
  const bool has_first = parse_header(pages.data(), first, why);
  const bool has_second = parse_header(pages.data() + kHeaderBytes, second, why_second);
  if (!has_first && !has_second) throw FormatError(why);
  return !has_second || (has_first && first.generation >= second.generation) ? first : second;
}

void PageStore::create(Disk& table, const Spec& spec, uint64_t page_bytes, uint64_t pages, uint64_t uid) {
  const uint64_t stamp = random_word();
  const Head head{spec, uid, 0, stamp, 0};
  std::vector<uint8_t> start(2 * page_bytes, 0);
  const std::vector<uint8_t> header = header_of(head);
  std::copy(header.begin(), header.end(), start.begin());
  std::copy(header.begin(), header.end(), start.begin() + kHeaderBytes);
  table.write(0, start.data(), start.size());
  const uint64_t step = std::max<uint64_t>(1, (uint64_t{1} << 20) / page_bytes);
  std::vector<uint8_t> buffer(step * page_bytes, 0);
  for (uint64_t p = 0; p < pages; p += step) {
    const uint64_t n = std::min(step, pages - p);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t checksum = xxh3_64(buffer.data() + i * page_bytes + 8, page_bytes - 8, splitmix(uid, p + i));
      std::memcpy(buffer.data() + i * page_bytes, &checksum, 8);
    }
    table.write((2 + p) * page_bytes, buffer.data(), n * page_bytes);
  }
}

PageStore::PageStore(Disk& table, Disk& journal, Tape& tape, Head head, uint64_t page_bytes, uint64_t pages,
                     uint32_t slots, bool durable)
    : table_(table),
      journal_(journal),
      tape_(tape),
      head_(std::move(head)),
      page_bytes_(page_bytes),
      pages_(pages),
      slots_(slots),
      durable_(durable),
      sequence_(head_.generation) {
  const uint64_t size = table.size();
  if (size != file_bytes())
    throw FormatError("the file has " + std::to_string(size) + " bytes and should have " +
                      std::to_string(file_bytes()) +
                      (size < file_bytes() ? ": it was cut short" : ": something follows it"));
#if defined(POSIX_FADV_RANDOM)
  ::posix_fadvise(table.descriptor(), 0, 0, POSIX_FADV_RANDOM);  // a look-up wants one page, not its neighbours
#endif
}

// ---- reading ----------------------------------------------------------------------------------------------

void PageStore::read_raw(uint64_t first, uint64_t count, uint8_t* out) const {
  const uint64_t bytes = count * page_bytes_;
  if (table_.read((2 + first) * page_bytes_, out, bytes) != bytes)
    throw FormatError("the file ends before page " + std::to_string(first + count - 1) + ": it was cut short");
}

void PageStore::check(uint64_t page, const uint8_t* image) const {
  uint64_t checksum;
  std::memcpy(&checksum, image, 8);
  if (checksum != xxh3_64(image + 8, page_bytes_ - 8, splitmix(head_.uid, page)))
    throw FormatError("page " + std::to_string(page) + " (at byte " + std::to_string((2 + page) * page_bytes_) +
                      "): its checksum is wrong, the file is damaged");
  if (page_count(image) > slots_)
    throw FormatError("page " + std::to_string(page) + " says that it holds more keys than it has slots");
}

void PageStore::read(uint64_t page, uint8_t* out) const {
  if (const uint8_t* image = changed(page)) {
    std::memcpy(out, image, page_bytes_);
    return;
  }
  read_raw(page, 1, out);
  check(page, out);
}

// ---- the journal ------------------------------------------------------------------------------------------

void PageStore::seal(uint64_t page, uint8_t* image) const {
  const uint64_t checksum = xxh3_64(image + 8, page_bytes_ - 8, splitmix(head_.uid, page));
  std::memcpy(image, &checksum, 8);
}

uint64_t PageStore::read_journal(Group* into) const {
  if (!journal_.is_open()) return 0;
  const uint64_t size = journal_.size();
  uint64_t offset = 0, due = 0, last = 0;
  const auto head_at = [&](uint64_t at, GroupFields& fields) {
    if (at + sizeof fields > size || journal_.read(at, &fields, sizeof fields) != sizeof fields) return false;
    return std::memcmp(fields.magic, kGroupMagic, 8) == 0 && fields.uid == head_.uid && fields.pages > 0 &&
           fields.pages <= pages_ && fields.checksum == xxh3_64(&fields, sizeof fields - 8, 0);
  };
  const auto end_of = [&](uint64_t at, const GroupFields& f) {
    return at + sizeof f + f.pages * (8 + page_bytes_) + 8;
  };
  GroupFields fields;
  std::vector<uint8_t> body;
  while (head_at(offset, fields)) {
    const uint64_t end = end_of(offset, fields);
    bool whole = end <= size;
    if (whole) {
      body.resize(end - offset - sizeof fields);
      whole = journal_.read(offset + sizeof fields, body.data(), body.size()) == body.size();
      uint64_t checksum;
      std::memcpy(&checksum, body.data() + body.size() - 8, 8);
      whole = whole && checksum == xxh3_64(body.data(), body.size() - 8, fields.number);
    }
    if (!whole) break;
    if (last == 0 ? fields.number > head_.generation + 1 : fields.number != last + 1)
      throw FormatError("the journal " + journal_.path() + " goes on from group " + std::to_string(fields.number - 1) +
                        ", but the table holds groups up to " + std::to_string(last == 0 ? head_.generation : last) +
                        ": one of the two files is of another time. Bring both from the same copy, or move the "
                        "journal away to open the table as it was then");
    last = fields.number;
    const uint64_t stamp = fields.stamp_and_synced >> 1;
    if (fields.number > head_.generation && stamp != 0 && stamp != head_.stamp >> 1)
      throw FormatError("the journal " + journal_.path() +
                        " was not written for this table, but for a copy of it that was changed apart: bring both "
                        "files from the same copy, or move the journal away to open the table without it");
    if (fields.number > head_.generation) {
      ++due;
      for (uint64_t i = 0; into != nullptr && i < fields.pages; ++i) {
        uint64_t page;
        std::memcpy(&page, body.data() + 8 * i, 8);
        if (page >= pages_) throw FormatError("the journal names page " + std::to_string(page) + ", which is none");
        PageImage& image = (*into)[page];
        if (!image) image.reset(new uint8_t[page_bytes_]);
        std::memcpy(image.get(), body.data() + 8 * fields.pages + i * page_bytes_, page_bytes_);
        check(page, image.get());
      }
    }
    offset = end;
  }
  // Behind the last whole group there is nothing, or one that was never acknowledged. If a group that says otherwise
  // follows, what is missing was on disk once.
  std::vector<uint8_t> rest(size > offset ? size - offset : 0);
  rest.resize(journal_.read(offset, rest.data(), rest.size()));
  for (uint64_t at = 8; at + sizeof fields <= rest.size(); at += 8) {  // groups are whole words long
    if (std::memcmp(rest.data() + at, kGroupMagic, 8) != 0 || !head_at(offset + at, fields)) continue;
    if (fields.number > std::max(last, head_.generation) && (fields.stamp_and_synced & 1) != 0)
      throw FormatError("the journal " + journal_.path() + " is damaged at byte " + std::to_string(offset) +
                        ", and acknowledged changes follow: bring table and journal back from a copy, or move the "
                        "journal away to open the table as it was before them");
  }
  return due;
}

uint64_t PageStore::recover() {
  Group pages;
  const uint64_t due = read_journal(&pages);
  if (due != 0) {
    overlay_ = std::move(pages);
    sequence_ = head_.generation + due;
    journal_end_ = journal_.size();
    synced_ = false;  // a process may have died before its sync
  } else if (journal_.is_open() && journal_.size() != 0) {
    journal_.truncate(0);
    journal_.sync();
  }
  return due;
}

void PageStore::append(const Group& group) {
  std::vector<uint8_t> bytes(kGroupHead + group.size() * (8 + page_bytes_) + 8);
  GroupFields fields{};
  std::memcpy(fields.magic, kGroupMagic, 8);
  fields.uid = head_.uid;
  fields.number = sequence_ + 1;
  fields.pages = group.size();
  fields.stamp_and_synced = (head_.stamp & ~uint64_t{1}) | (synced_ ? 1 : 0);
  fields.checksum = xxh3_64(&fields, sizeof fields - 8, 0);
  std::memcpy(bytes.data(), &fields, sizeof fields);
  uint8_t *number = bytes.data() + kGroupHead, *image = number + 8 * group.size();
  for (const auto& [page, data] : group) {
    std::memcpy(number, &page, 8);
    std::memcpy(image, data.get(), page_bytes_);
    number += 8;
    image += page_bytes_;
  }
  const uint64_t checksum = xxh3_64(bytes.data() + kGroupHead, bytes.size() - kGroupHead - 8, fields.number);
  std::memcpy(image, &checksum, 8);
  try {
    journal_.write(journal_end_, bytes.data(), bytes.size());
  } catch (...) {  // IoError, or no memory for it
    try {
      journal_.truncate(journal_end_);
    } catch (...) {
      failed_ = true;
    }
    throw;
  }
  synced_ = false;
  if (durable_) {
    try {
      journal_.sync();
    } catch (...) {
      failed_ = true;
      throw;
    }
    synced_ = true;
  }
  journal_end_ += bytes.size();
}

// ---- changes ------------------------------------------------------------------------------------------------

PageStore::Writes PageStore::writes_of(const Group& group) const {
  Writes writes;
  writes.order.reserve(group.size());
  for (const auto& [page, image] : group) writes.order.push_back(page);
  std::sort(writes.order.begin(), writes.order.end());
  const uint64_t most = std::max<uint64_t>(1, (uint64_t{1} << 20) / page_bytes_);
  writes.buffer.resize(std::min<uint64_t>(most, group.size()) * page_bytes_);
  return writes;
}

void PageStore::write_pages(const Group& group, Writes& writes) {
  const std::vector<uint64_t>& order = writes.order;
  const uint64_t most = writes.buffer.size() / page_bytes_;
  for (size_t i = 0; i < order.size();) {
    size_t n = 1;
    while (n < most && i + n < order.size() && order[i + n] == order[i] + n) ++n;
    for (size_t j = 0; j < n; ++j)
      std::memcpy(writes.buffer.data() + j * page_bytes_, group.at(order[i + j]).get(), page_bytes_);
    table_.write((2 + order[i]) * page_bytes_, writes.buffer.data(), n * page_bytes_);
    i += n;
  }
}

void PageStore::commit(Group group, bool journal) {
  if (failed_)
    throw std::runtime_error(
        "an earlier change failed in the middle: close this table and open it anew; what was acknowledged is safe");
  if (group.empty()) return;
  for (auto& [page, image] : group) seal(page, image.get());
  if (!journal) {
    Writes writes = writes_of(group);
    write_pages(group, writes);
    ++sequence_;
    return;
  }
  // Acknowledged by `append`: from there on nothing may fail, so nodes move over, to a table that has room for them.
  if (const size_t after = overlay_.size() + group.size(); after >= overlay_.bucket_count())
    overlay_.reserve(2 * after);
  if (tape_.on) tape_.steps.reserve(tape_.steps.size() + 3);
  append(group);
  ++sequence_;
  if (tape_.on) tape_.steps.push_back({0, 'a', sequence_, {}});
  while (!group.empty()) {
    auto node = group.extract(group.begin());
    const auto found = overlay_.find(node.key());
    if (found == overlay_.end())
      overlay_.insert(std::move(node));
    else
      found->second = std::move(node.mapped());
  }
}

void PageStore::checkpoint(uint64_t keys) {
  if (failed_) throw std::runtime_error("an earlier change failed in the middle: open this table anew");
  if (sequence_ == head_.generation) return;
  // Whatever needs memory comes first: then nothing has happened. What fails later leaves the files in doubt.
  Head next = head_;
  next.generation = sequence_;
  next.stamp = random_word();
  next.keys = keys;
  const std::vector<uint8_t> header = header_of(next);
  const uint64_t slot = older_header();  // so that a torn one leaves the other
  Writes writes = writes_of(overlay_);
  try {
    if (!synced_) journal_.sync();
    synced_ = true;
    write_pages(overlay_, writes);
    table_.sync();  // before the header says that they are there
    table_.write(slot * kHeaderBytes, header.data(), header.size());
    table_.sync();
    head_.generation = next.generation;  // the spec stays as it is: others read it without waiting
    head_.stamp = next.stamp;
    head_.keys = next.keys;
    if (journal_.is_open()) {
      journal_.truncate(0);
      journal_.sync();
    }
    journal_end_ = 0;
    overlay_.clear();
  } catch (...) {
    failed_ = true;
    throw;
  }
}

uint64_t PageStore::older_header() const {
  std::vector<uint8_t> pages(2 * kHeaderBytes);
  table_.read(0, pages.data(), pages.size());
  Head head[2];
  std::string why;
  for (uint64_t i = 0; i < 2; ++i)
    if (!parse_header(pages.data() + i * kHeaderBytes, head[i], why)) return i;
  return head[0].generation >= head[1].generation ? 1 : 0;
}

}  // namespace evenbins
