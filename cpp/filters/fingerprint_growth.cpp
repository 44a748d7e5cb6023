#include "evenbins/fingerprint_growth.hpp"

#include <algorithm>
#include <utility>

#include "fingerprint_blocks.hpp"

namespace evenbins {

using namespace fingerprints;

namespace {
constexpr uint64_t kMostKeys = (uint64_t{1} << 48) / 101 * 100;
constexpr uint64_t kReleaseWords = uint64_t{1} << 19;  // pages go back when there are so many of them: 4 MiB
constexpr size_t kBatch = 1024;

uint64_t slots_of(uint64_t quotients, uint64_t remainder) { return (512 - quotients) / (remainder + 1); }
}  // namespace

uint64_t fingerprint_keys(uint64_t limit) { return (100 * limit + 100) / 101; }

// As theory/fingerprint_design.py has it: copies_limit and rest_limit of so many keys.
Spec doubled_spec(const Spec& spec) {
  Spec to = spec;
  uint64_t &lines = to.core[0], &remainder = to.core[1], &rest = to.core[4], &limit = to.core[5];
  const uint64_t before = slots_of(to.core[2], remainder), after = slots_of(to.core[2], remainder - 1);
  const auto keys = static_cast<uint128>(fingerprint_keys(limit)) * 2 * after / before;
  to.capacity = keys < kMostKeys ? static_cast<uint64_t>(keys) : kMostKeys;
  lines *= 2;
  --remainder;
  limit = to.capacity + to.capacity / 100;
  rest = std::max(rest, (std::min(limit, 64 + (to.capacity + 4999) / 5000) + 7) / 8 * 8);
  --to.core[7];
  return to;
}

// Moves blocks: both halves are built before anything changes.
struct GrowingFingerprintFilter::Mover {
  explicit Mover(const FingerprintView& to) : low(to), high(to) {}
  void build(const FingerprintFilter& from, const FingerprintView& to, uint64_t block) {
    from.fingerprints(block, keys);
    const auto middle = std::lower_bound(keys.begin(), keys.end(), least_of_block(to, 2 * block + 1));
    low.build(2 * block, {keys.begin(), middle});
    high.build(2 * block + 1, {middle, keys.end()});
  }
  void write(const FingerprintView& to, uint64_t block) const {
    low.write(2 * block, to);
    high.write(2 * block + 1, to);
  }
  FingerprintBuilder low, high;
  std::vector<uint64_t> keys, listed;
  uint64_t released1 = 0, released2 = 0;  // lines of the old levels
};

GrowingFingerprintFilter::GrowingFingerprintFilter(Spec spec, Bits bits)
    : FingerprintFilter(std::move(spec), std::move(bits)) {
  retired_.reserve(spec_.core[7]);
  Spec last = spec_;
  while (last.core[7] != 0) last = doubled_spec(last);
  most_keys_ = last.capacity;
  sides_.filter = this;
  route();
  set_one({.add_to = is_set_ ? add_one<true> : add_one<false>,
           .add_new_to = add_one<true>,
           .contained_in = contains_one,
           .view = &sides_});
}
GrowingFingerprintFilter::~GrowingFingerprintFilter() = default;

void GrowingFingerprintFilter::route() {
  sides_.now = own_one();
  sides_.old = old_ != nullptr ? old_->own_one() : sides_.now;
  sides_.bound = old_ != nullptr ? least_word_of(moved_, old_->blocks()) : 0;
}

uint64_t GrowingFingerprintFilter::begin_at() const {
  const uint64_t keys = fingerprint_keys(view_.limit);
  return keys - keys / 20;
}

uint64_t GrowingFingerprintFilter::keys_left() const {
  const uint64_t in = copies();
  const uint64_t end = old_ != nullptr ? last_step_ : spec_.core[7] != 0 ? begin_at() : view_.limit;
  return in < end ? end - in : 0;
}

Address GrowingFingerprintFilter::address() const {
  return old_ != nullptr ? old_->address() : FingerprintFilter::address();
}
uint64_t GrowingFingerprintFilter::nbytes() const {
  return bits_.bytes() + (old_ != nullptr ? old_->bits().bytes() : 0);
}

// --- growth -----------------------------------------------------------------------------------------------------

void GrowingFingerprintFilter::begin() {
  const Spec spec = doubled_spec(spec_);
  const uint64_t in = copies(), end = fingerprint_keys(view_.limit);
  auto next = std::make_unique<FingerprintFilter>(spec, Bits::zeroed(payload_bytes(spec)));
  auto mover = std::make_unique<Mover>(view_);
  swap_content(*next);
  old_ = std::move(next);
  mover_ = std::move(mover);
  moved_ = 0;
  first_step_ = in;
  last_step_ = std::max(end, in + 1);
  route();
}

void GrowingFingerprintFilter::move_blocks(uint64_t end) {
  Mover& m = *mover_;
  FingerprintFilter& old = *old_;
  for (; moved_ < end; ++moved_, route()) {
    m.build(old, view_, moved_);
    const auto listed = of_block(old.view_, old.rest_.stored(), moved_);
    m.listed.assign(listed.begin(), listed.end());
    rest_.reserve(rest_.excess().size() + m.low.rest().size() + m.high.rest().size() + FingerprintRest::kMostMoved);
    m.write(view_, moved_);  // from here on nothing fails
    for (const uint64_t fingerprint : m.low.rest()) rest_.add(fingerprint);
    for (const uint64_t fingerprint : m.high.rest()) rest_.add(fingerprint);
    for (const uint64_t fingerprint : m.listed) old.rest_.remove(fingerprint);
    old.view_.state[0] -= m.keys.size();
    view_.state[0] += m.keys.size();
    release(kReleaseWords);
  }
}

// Returns the pages of blocks that have moved, if there are so many words of them.
void GrowingFingerprintFilter::release(uint64_t least) {
  const FingerprintView& f = old_->view_;
  const auto pass_on = [&](const uint64_t* level, uint64_t lines_per_block, uint64_t& released) {
    const uint64_t first = static_cast<uint64_t>(level - f.state) + kLineWords * released;
    const uint64_t lines = lines_per_block * (moved_ + 1);
    if (kLineWords * (lines - released) < least) return;
    old_->bits_.release(first, first + kLineWords * (lines - released));
    released = lines;
  };
  pass_on(f.level1, 16 * f.group, mover_->released1);
  pass_on(f.level2, 16, mover_->released2);
}

void GrowingFingerprintFilter::finish() {
  if (rest_.is_overfull()) widen_rest();
  old_->bits_.release(0, old_->bits_.size());
  retired_.push_back(std::move(old_->bits_));  // there is memory for it
  old_.reset();
  mover_.reset();
  until_step_ = 0;
  route();
}

// What the rest holds beyond its room gets room: a larger rest, in memory of its own. Keys that came very often lie
// elsewhere in twice the lines, and may need more of it.
void GrowingFingerprintFilter::widen_rest() {
  Spec spec = spec_;
  std::vector<uint64_t> all(rest_.stored().begin(), rest_.stored().end());
  all.insert(all.end(), rest_.excess().begin(), rest_.excess().end());
  std::sort(all.begin(), all.end());
  spec.core[4] = (all.size() + 7) / 8 * 8;
  FingerprintFilter wide(spec, Bits::zeroed(payload_bytes(spec)));
  retired_.reserve(retired_.size() + 2 + spec.core[7]);
  std::copy(bits_.words(), bits_.words() + (rest_words(view_) - view_.state), wide.bits_.words());
  std::copy(all.begin(), all.end(), rest_words(wide.view_));
  wide.view_.state[2] = all.size();
  swap_content(wide);
  wide.bits_.release(0, wide.bits_.size());
  retired_.push_back(std::move(wide.bits_));
}

void GrowingFingerprintFilter::prepare() {
  if (is_due()) begin();
  if (old_ == nullptr) {
    const uint64_t left = keys_left();
    until_step_ = spec_.core[7] != 0 ? left : std::max<uint64_t>(left, 1);
    return;
  }
  const uint64_t in = copies(), blocks = old_->blocks(), steps = last_step_ - first_step_;
  const uint64_t done = std::min(in > first_step_ ? in - first_step_ : 0, steps);
  move_blocks(std::min<uint64_t>(blocks, static_cast<uint64_t>(static_cast<uint128>(blocks) * done / steps) + 1));
  until_step_ = std::max<uint64_t>(steps / blocks, 1);
  if (moved_ == blocks) finish();
}

// All blocks that have not moved, by threads. Until they are done, the old ones count.
void GrowingFingerprintFilter::settle(uint32_t threads) {
  until_step_ = 0;  // threads add next, it may be, and do not count
  if (old_ == nullptr) return;
  constexpr uint64_t kBlocks = 4;
  std::mutex lock;
  std::vector<uint64_t> rest;
  uint64_t copies = 0;
  for_stretches(
      old_->blocks() - moved_, threads, kBlocks, [] { return true; },
      [&](uint64_t start, uint64_t count) {
        Mover m(view_);
        for (uint64_t block = moved_ + start; block < moved_ + start + count; ++block) {
          m.build(*old_, view_, block);
          m.write(view_, block);
          const std::lock_guard hold(lock);
          copies += m.keys.size();
          rest.insert(rest.end(), m.low.rest().begin(), m.low.rest().end());
          rest.insert(rest.end(), m.high.rest().begin(), m.high.rest().end());
        }
      });
  rest_.reserve(rest_.excess().size() + rest.size() + FingerprintRest::kMostMoved);
  for (const uint64_t fingerprint : rest) rest_.add(fingerprint);
  view_.state[0] += copies;
  moved_ = old_->blocks();
  old_->view_.state[0] = 0;
  finish();
}

bool GrowingFingerprintFilter::grow(uint32_t threads) {
  settle(threads);
  if (spec_.core[7] == 0) return false;
  begin();
  settle(threads);
  return true;
}

// --- keys -------------------------------------------------------------------------------------------------------

template <bool OnlyNew>
AddOutcome GrowingFingerprintFilter::add_one(const void* sides, uint64_t digest) {
  const auto& s = *static_cast<const Sides*>(sides);
  GrowingFingerprintFilter& f = *s.filter;
  if (f.until_step_ == 0) [[unlikely]] {
    if (OnlyNew && f.is_due() && s.of(digest).contains(digest)) return AddOutcome::present;
    f.prepare();
  }
  const AddOutcome outcome = OnlyNew ? s.of(digest).add_new(digest) : s.of(digest).add(digest);
  if (f.until_step_ != 0) --f.until_step_;
  if (outcome == AddOutcome::full && f.old_ != nullptr) [[unlikely]] {  // one of the two rests is, with many copies
    f.settle(1);
    return add_one<OnlyNew>(sides, digest);
  }
  return outcome;
}

bool GrowingFingerprintFilter::contains_one(const void* sides, uint64_t digest) {
  return static_cast<const Sides*>(sides)->of(digest).contains(digest);
}

template <bool OnlyNew>
size_t GrowingFingerprintFilter::add_in_steps(const uint64_t* digests, size_t n, uint8_t* out) {
  refused_.clear();
  for (size_t i = 0; i < n;) {
    if (old_ == nullptr && until_step_ != 0) {  // all of them in this filter's own lines
      const size_t step = std::min<uint64_t>(n - i, until_step_);
      uint8_t* const answers = out != nullptr ? out + i : nullptr;
      const size_t treated = OnlyNew ? FingerprintFilter::add_new_many(digests + i, step, answers)
                                     : FingerprintFilter::add_many(digests + i, step);
      until_step_ -= treated;
      i += treated;
      if (treated < step) return i;
      continue;
    }
    const AddOutcome outcome = add_one<OnlyNew>(&sides_, digests[i]);
    if (outcome == AddOutcome::full) return i;
    if (out != nullptr) out[i] = outcome == AddOutcome::added;
    ++i;
  }
  return n;
}

size_t GrowingFingerprintFilter::add_many(const uint64_t* digests, size_t n) {
  return is_set_ ? add_in_steps<true>(digests, n, nullptr) : add_in_steps<false>(digests, n, nullptr);
}
size_t GrowingFingerprintFilter::add_new_many(const uint64_t* digests, size_t n, uint8_t* out) {
  return add_in_steps<true>(digests, n, out);
}

// Calls act(filter, digests, n, answers) for those of each side, and puts the answers where their digests stood.
template <typename Answer, typename Act>
void GrowingFingerprintFilter::each_side(const uint64_t* digests, size_t n, Answer* out, const Act& act) const {
  uint64_t part[kBatch];
  size_t places[kBatch];
  Answer answers[kBatch];
  for (size_t start = 0; start < n; start += kBatch) {
    const size_t end = std::min(n, start + kBatch);
    for (const bool moved : {true, false}) {
      size_t count = 0;
      for (size_t i = start; i < end; ++i) {
        part[count] = digests[i];
        places[count] = i;
        count += (digests[i] < sides_.bound) == moved;
      }
      act(moved ? static_cast<const FingerprintFilter&>(*this) : *old_, part, count, answers);
      for (size_t i = 0; i < count; ++i) out[places[i]] = answers[i];
    }
  }
}

void GrowingFingerprintFilter::contains_many(const uint64_t* digests, size_t n, uint8_t* out) const {
  if (old_ == nullptr) return FingerprintFilter::contains_many(digests, n, out);
  each_side(digests, n, out, [](const FingerprintFilter& f, const uint64_t* part, size_t count, uint8_t* answers) {
    f.FingerprintFilter::contains_many(part, count, answers);
  });
}
void GrowingFingerprintFilter::count_many(const uint64_t* digests, size_t n, int64_t* out) const {
  if (old_ == nullptr) return FingerprintFilter::count_many(digests, n, out);
  each_side(digests, n, out, [](const FingerprintFilter& f, const uint64_t* part, size_t count, int64_t* answers) {
    f.FingerprintFilter::count_many(part, count, answers);
  });
}
bool GrowingFingerprintFilter::remove(uint64_t digest) {
  return old_ == nullptr || digest < sides_.bound ? FingerprintFilter::remove(digest) : old_->remove(digest);
}
void GrowingFingerprintFilter::remove_many(const uint64_t* digests, size_t n, uint8_t* out) {
  if (old_ == nullptr) return FingerprintFilter::remove_many(digests, n, out);
  each_side(digests, n, out, [](const FingerprintFilter& f, const uint64_t* part, size_t count, uint8_t* answers) {
    const_cast<FingerprintFilter&>(f).FingerprintFilter::remove_many(part, count, answers);
  });
}

// --- the filter as a whole --------------------------------------------------------------------------------------

void GrowingFingerprintFilter::fingerprints(uint64_t block, std::vector<uint64_t>& out) const {
  const uint64_t first = least_of_block(view_, block), end = least_of_block(view_, block + 1);
  if (old_ != nullptr && block / 2 >= moved_) {
    old_->fingerprints(block / 2, out);
    out.erase(std::lower_bound(out.begin(), out.end(), end), out.end());
    out.erase(out.begin(), std::lower_bound(out.begin(), out.end(), first));
    return;
  }
  FingerprintFilter::fingerprints(block, out);
  for (const uint64_t each : rest_.excess())
    if (each >= first && each < end) out.insert(std::upper_bound(out.begin(), out.end(), each), each);
}

void GrowingFingerprintFilter::merge_in(const Filter& other, std::vector<uint64_t>& space) {
  leave_old();
  FingerprintFilter::merge_in(other, space);
}
void GrowingFingerprintFilter::clear() {
  leave_old();
  FingerprintFilter::clear();
}
// Drops everything that has not moved, and what the rest holds beyond its room.
void GrowingFingerprintFilter::leave_old() {
  until_step_ = 0;
  if (old_ == nullptr) return;
  while (rest_.is_overfull()) rest_.remove(rest_.excess().back());
  finish();
}

std::unique_ptr<Filter> GrowingFingerprintFilter::copy() const {
  auto twin = std::make_unique<GrowingFingerprintFilter>(spec_, bits_.copy());
  if (old_ == nullptr) return twin;
  for (const uint64_t each : rest_.excess()) {
    twin->rest_.reserve(rest_.excess().size());
    twin->rest_.add(each);
  }
  twin->old_ = std::make_unique<FingerprintFilter>(old_->spec_, old_->bits_.copy());
  twin->mover_ = std::make_unique<Mover>(twin->view_);
  twin->moved_ = moved_;
  twin->route();
  twin->settle(1);
  return twin;
}

std::vector<uint64_t> GrowingFingerprintFilter::level_histogram(uint32_t level) const {
  return old_ == nullptr ? FingerprintFilter::level_histogram(level) : copy()->level_histogram(level);
}
std::string GrowingFingerprintFilter::check(bool thorough) const {
  return old_ == nullptr ? FingerprintFilter::check(thorough) : copy()->check(thorough);
}
std::vector<uint64_t> GrowingFingerprintFilter::state() const {
  std::vector<uint64_t> all = FingerprintFilter::state();
  if (old_ == nullptr) return all;
  all[0] += old_->view_.state[0];
  all[1] += old_->view_.state[2] + rest_.excess().size();
  return all;
}

}  // namespace evenbins
