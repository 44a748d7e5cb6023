#include "evenbins/partitioned.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

#include "evenbins/digest_stretches.hpp"
#include "evenbins/threads.hpp"

namespace evenbins {
namespace {

constexpr uint64_t kLeastBytes = uint64_t{64} << 20;  // of a filter; smaller ones are in the last-level cache
constexpr uint32_t kPartLinesLog = 13;                // lines of a part, at least: 512 KiB
constexpr uint32_t kMostPartsLog = 12;
constexpr uint32_t kMostPartLinesLog = 18;          // of a filter of 64 GiB
constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // for chunks, unless that is less than an item for each line
constexpr uint32_t kLineItems = 16;
constexpr uint32_t kNoChunk = ~uint32_t{0};

// Writes a line past the caches.
EVENBINS_INLINE void stream_line(uint32_t* to, const uint32_t* from) {
#if defined(__SSE2__) || defined(_M_X64)
  for (uint32_t i = 0; i < 4; ++i)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_load_si128(reinterpret_cast<const __m128i*>(from) + i));
#else
  std::memcpy(to, from, sizeof(uint32_t) * kLineItems);
#endif
}
EVENBINS_INLINE void finish_streams() {
#if defined(__SSE2__) || defined(_M_X64)
  _mm_sfence();
#endif
}

// How a filter is cut.
struct Parts {
  uint32_t item_log;  // items of a part
  uint32_t line_log;  // its lines
  uint64_t lines;     // of the filter
  uint32_t count;

  explicit Parts(const Address& address) : lines(address.lines) {
    const auto log = static_cast<uint32_t>(std::bit_width(lines - 1));
    line_log = std::max(kPartLinesLog, log > kMostPartsLog ? log - kMostPartsLog : 0);
    item_log = line_log + address.shift;
    count = static_cast<uint32_t>((lines - 1) >> line_log) + 1;
  }
  bool are_small() const { return line_log <= kMostPartLinesLog && item_log <= 32; }
};

// Memory for items, cut into chunks that belong to one thread and one part.
class Chunks {
 public:
  // For so many items of so many threads and parts: each thread may have begun a chunk of each part.
  Chunks(uint64_t items, uint64_t parts)
      : size_(static_cast<uint32_t>(std::bit_floor(std::clamp<uint64_t>(items / (4 * parts), 256, 2048)))),
        memory_(Bits::zeroed((items / size_ + parts + 1) * size_ * sizeof(uint32_t))),
        before_(std::make_unique_for_overwrite<uint32_t[]>(items / size_ + parts + 1)) {}
  uint32_t size() const { return size_; }  // items of a chunk
  void clear() { used_ = 0; }
  uint32_t take(uint32_t before) {
    const uint32_t chunk = used_.fetch_add(1, std::memory_order_relaxed);
    before_[chunk] = before;
    return chunk;
  }
  uint32_t* at(uint32_t chunk) { return reinterpret_cast<uint32_t*>(memory_.words()) + uint64_t{size_} * chunk; }
  uint32_t before(uint32_t chunk) const { return before_[chunk]; }

 private:
  uint32_t size_;
  Bits memory_;
  std::unique_ptr<uint32_t[]> before_;  // the chunk that was filled before, or kNoChunk
  std::atomic<uint32_t> used_ = 0;
};

// What one thread has sorted.
class Sorter {
 public:
  Sorter(const Parts& parts, Chunks& chunks)
      : parts_(parts),
        chunks_(chunks),
        lines_(std::make_unique_for_overwrite<Line[]>(parts.count)),
        counts_(parts.count),
        places_(parts.count) {}

  void clear() {
    std::fill(counts_.begin(), counts_.end(), uint8_t{0});
    std::fill(places_.begin(), places_.end(), Place{kNoChunk, chunks_.size()});
  }

  void add(const uint64_t* items, size_t n) {
    const uint32_t log = parts_.item_log, parts = parts_.count;  // here, since a byte that is stored might be theirs
    const uint64_t mask = (uint64_t{1} << log) - 1;
    Line* const lines = lines_.get();
    uint8_t* const counts = counts_.data();
    for (size_t i = 0; i < n; ++i) {
      const uint64_t part = items[i] >> log;
      if (part >= parts) [[unlikely]]
        continue;  // kNoCounter
      const uint8_t count = counts[part];
      lines[part].items[count] = static_cast<uint32_t>(items[i] & mask);
      counts[part] = static_cast<uint8_t>(count + 1);
      if (count + 1 == kLineItems) [[unlikely]]
        flush(part);
    }
  }

  // Calls act(items, n) for what a part has.
  template <typename Act>
  void each(uint32_t part, const Act& act) const {
    act(lines_[part].items.data(), size_t{counts_[part]});
    const Place& place = places_[part];
    uint32_t n = place.filled;
    for (uint32_t chunk = place.chunk, before; chunk != kNoChunk; chunk = before, n = chunks_.size()) {
      before = chunks_.before(chunk);
      if (before != kNoChunk)  // the processor foresees what follows its beginning
        for (uint32_t line = 0; line < 4; ++line) __builtin_prefetch(chunks_.at(before) + kLineItems * line);
      act(static_cast<const uint32_t*>(chunks_.at(chunk)), size_t{n});
    }
  }

 private:
  struct alignas(64) Line {
    std::array<uint32_t, kLineItems> items;
  };
  struct Place {
    uint32_t chunk, filled;  // the chunk in use, and its items
  };

  EVENBINS_NOINLINE void flush(uint64_t part) {
    Place& place = places_[part];
    if (place.filled == chunks_.size()) place = {chunks_.take(place.chunk), 0};
    stream_line(chunks_.at(place.chunk) + place.filled, lines_[part].items.data());
    place.filled += kLineItems;
    counts_[part] = 0;
  }

  const Parts& parts_;
  Chunks& chunks_;
  std::unique_ptr<Line[]> lines_;
  std::vector<uint8_t> counts_;  // items in the line of each part
  std::vector<Place> places_;
};

// Adds one part, while the lines of the next one are on their way.
void add_part(ByRange& filter, const Parts& parts, const std::vector<Sorter>& sorters, uint32_t part,
              Upcoming upcoming) {
  const uint64_t first = uint64_t{part} << parts.item_log;
  for (const Sorter& sorter : sorters)
    sorter.each(part, [&](const uint32_t* offsets, size_t n) { filter.add_near_items(first, offsets, n, upcoming); });
}

}  // namespace

bool pays_to_partition(Filter& filter, uint64_t keys) {
  ByRange* const by_range = filter.by_range();
  if (by_range == nullptr || filter.bits().bytes() < kLeastBytes || by_range->items_per_key() < 2) return false;
  const Address address = by_range->address();
  return address.scale == 0 && Parts(address).are_small() && keys >= address.lines / by_range->items_per_key();
}

uint64_t add_partitioned(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse, bool& stopped) {
  ByRange& by_range = *filter.by_range();
  const Parts parts(by_range.address());
  const uint32_t per_key = by_range.items_per_key();
  const uint64_t size = keys.size(), least = parts.lines / per_key;
  const uint64_t bytes = std::min(filter.bits().bytes() / 2, kMostBytes);
  const uint64_t most = std::max<uint64_t>(bytes / (sizeof(uint32_t) * per_key), least);
  const uint64_t pass = (size - 1) / ((size + most - 1) / most) + 1;  // passes of equal length
  std::unique_ptr<Chunks> chunks;
  std::vector<Sorter> sorters;
  try {
    chunks = std::make_unique<Chunks>(pass * per_key, uint64_t{threads} * parts.count);
    sorters.reserve(threads);
    for (uint32_t t = 0; t < threads; ++t) sorters.emplace_back(parts, *chunks);
  } catch (const std::bad_alloc&) {
    return 0;
  }

  uint64_t start = 0;
  for (; start < size; start += pass) {
    const uint64_t end = std::min(size, start + pass);
    chunks->clear();
    for (Sorter& sorter : sorters) sorter.clear();  // here, since the system may refuse their threads
    std::atomic<uint64_t> next = start;
    std::atomic<bool> stop = false;
    const uint64_t stretch = digest_stretch(end - start, threads);
    try {
      run_on_threads(threads, [&](uint32_t t) {
        constexpr size_t kGroup = 256;  // keys, so that their items stay in the first-level cache
        Sorter& sorter = sorters[t];
        std::vector<uint64_t> digests(kGroup), items(kGroup * per_key);
        for (uint64_t at; !stop && (at = next.fetch_add(stretch)) < end;) {
          if (t == 0 && !pulse()) stop = true;
          for (const uint64_t last = std::min(end, at + stretch); at < last; at += kGroup) {
            const size_t n = std::min<uint64_t>(kGroup, last - at);
            keys.read(at, n, digests.data());
            by_range.items(digests.data(), n, items.data());
            sorter.add(items.data(), n * per_key);
          }
        }
        finish_streams();
      });
    } catch (const BadKey&) {
      return start;
    } catch (const std::bad_alloc&) {
      return start;
    }
    if ((stopped = stop)) return start;

    const uint64_t items_per_part = (end - start) * per_key / parts.count + 1;
    std::atomic<uint32_t> next_part = 0;
    run_on_threads(threads, [&](uint32_t) {
      const uint64_t* const words = filter.bits().words();
      for (uint32_t part = next_part++, after; part < parts.count; part = after) {
        after = next_part++;
        const uint64_t first = uint64_t{after} << parts.line_log;
        const uint64_t lines = after < parts.count ? std::min(parts.lines - first, uint64_t{1} << parts.line_log) : 0;
        add_part(by_range, parts, sorters, part,
                 {words + 8 * first, words + 8 * (first + lines), lines * Upcoming::kItems / items_per_part + 1});
      }
    });
  }
  return size;
}

}  // namespace evenbins
