#include "evenbins/fingerprint.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "evenbins/fingerprint_growth.hpp"
#include "fingerprint_blocks.hpp"

namespace evenbins {

using namespace fingerprints;

namespace {

constexpr size_t kCoreSize = 8;

FingerprintView view_of(const Spec& spec, uint64_t* words) {
  return fingerprints::view_of(spec.core[0], static_cast<uint32_t>(spec.core[1]), spec.core[2], spec.core[3],
                               spec.core[5], 0, words);
}

}  // namespace

void FingerprintRest::add(uint64_t fingerprint) noexcept {
  if (*count_ == room_) {
    excess_.push_back(fingerprint);
    return beyond_.store(excess_.size(), std::memory_order_relaxed);
  }
  uint64_t* at = std::upper_bound(words_, words_ + *count_, fingerprint);
  std::memmove(at + 1, at, static_cast<size_t>(words_ + *count_ - at) * sizeof(uint64_t));
  *at = fingerprint;
  ++*count_;
}

bool FingerprintRest::remove(uint64_t fingerprint) {
  if (const auto found = std::find(excess_.begin(), excess_.end(), fingerprint); found != excess_.end()) {
    *found = excess_.back();
    excess_.pop_back();
    beyond_.store(excess_.size(), std::memory_order_relaxed);
    return true;
  }
  uint64_t* const end = words_ + *count_;
  uint64_t* at = std::lower_bound(words_, end, fingerprint);
  if (at == end || *at != fingerprint) return false;
  std::memmove(at, at + 1, static_cast<size_t>(end - at - 1) * sizeof(uint64_t));
  end[-1] = 0;
  --*count_;
  if (!excess_.empty()) {
    const uint64_t other = excess_.back();
    excess_.pop_back();
    beyond_.store(excess_.size(), std::memory_order_relaxed);
    add(other);
  }
  return true;
}

uint64_t* FingerprintRest::find(uint64_t first, uint64_t last) {
  uint64_t* const at = std::lower_bound(words_, words_ + *count_, first);
  if (at != words_ + *count_ && *at <= last) return at;
  const auto found = std::ranges::find_if(excess_, [&](uint64_t other) { return other >= first && other <= last; });
  return found != excess_.end() ? &*found : nullptr;
}

void RefusedKeys::add(const uint64_t* digests, size_t n) {
  for (size_t i = 0; i < n; ++i) keys_.push_back({digests[i], 0});
  sorted_ = false;
}

bool RefusedKeys::take(uint64_t digest) {
  if (!sorted_) std::ranges::sort(keys_, {}, &Key::digest);  // only before the first was taken
  sorted_ = true;
  const auto first = std::ranges::lower_bound(keys_, digest, {}, &Key::digest);  // clang 14 has no equal_range
  const auto last = std::ranges::upper_bound(first, keys_.end(), digest, {}, &Key::digest);
  return first != last && first->taken < static_cast<uint64_t>(last - first) && ++first->taken != 0;
}

void RefusedKeys::clear() {
  if (!any()) return;
  keys_ = {};
  sorted_ = false;
  any_.store(false, std::memory_order_relaxed);
}

namespace {

// Calls act(fingerprint) for those of the rest that are of a block, until it returns false.
template <typename Act>
void each_in_rest(const FingerprintView& f, uint64_t block, const Act& act) {
  for (const uint64_t fingerprint : of_block(f, f.rest->stored(), block))
    if (!act(fingerprint)) return;
  for (const uint64_t fingerprint : f.rest->excess())
    if (fingerprint >= least_of_block(f, block) && fingerprint < least_of_block(f, block + 1) && !act(fingerprint))
      return;
}

void rest_add(const FingerprintView& f, const FingerprintKey& k) {
  const std::lock_guard lock(f.rest->mutex);
  f.rest->add(fingerprint_of_key(f, k));
}
bool rest_remove(const FingerprintView& f, const FingerprintKey& k) {
  const std::lock_guard lock(f.rest->mutex);
  return f.rest->remove(fingerprint_of_key(f, k));
}
bool rest_take_largest(const FingerprintView& f, uint64_t block, uint64_t& key) {
  const std::lock_guard lock(f.rest->mutex);
  bool found = false;
  each_in_rest(f, block, [&](uint64_t fingerprint) {
    const uint64_t other = key_of(f, fingerprint);
    if (!found || other > key) key = other;
    return found = true;
  });
  return found && f.rest->remove(fingerprint_of_key(f, {block, key}));
}
uint32_t rest_find(const FingerprintView& f, uint64_t block, uint64_t first, uint64_t last, uint64_t* out,
                   uint32_t most) {
  const std::lock_guard lock(f.rest->mutex);
  uint32_t n = 0;
  each_in_rest(f, block, [&](uint64_t fingerprint) {
    if (const uint64_t key = key_of(f, fingerprint); key >= first && key <= last) out[n++] = key;
    return n < most;
  });
  return n;
}
uint64_t rest_count(const FingerprintView& f, const FingerprintKey& k, bool locked) {
  std::unique_lock lock(f.rest->mutex, std::defer_lock);
  if (locked) lock.lock();
  const uint64_t fingerprint = fingerprint_of_key(f, k);
  const std::span<const uint64_t> stored = f.rest->stored();
  const auto [first, last] = std::equal_range(stored.begin(), stored.end(), fingerprint);
  const auto& excess = f.rest->excess();
  return static_cast<uint64_t>(last - first + std::count(excess.begin(), excess.end(), fingerprint));
}
int64_t rest_exchange(const FingerprintView& f, const FingerprintKey& k, const uint32_t* put, bool locked) {
  std::unique_lock lock(f.rest->mutex, std::defer_lock);
  if (locked) lock.lock();
  const uint64_t first = fingerprint_of_key(f, k), mask = (uint64_t{1} << f.payload) - 1;
  uint64_t* const found = f.rest->find(first, first + mask);
  if (found == nullptr) return -1;
  const uint64_t before = *found & mask;
  if (put != nullptr) *found = first + *put;
  return static_cast<int64_t>(before);
}
bool rest_is_overfull(const FingerprintView& f) { return f.rest->is_overfull(); }

}  // namespace

extern constinit const FingerprintRestCalls kFingerprintRest = {
    .add = rest_add,
    .remove = rest_remove,
    .take_largest = rest_take_largest,
    .find = rest_find,
    .count = rest_count,
    .exchange = rest_exchange,
    .is_overfull = rest_is_overfull,
};

uint64_t FingerprintFilter::payload_bytes(const Spec& spec) {
  if (spec.hashing != Hashing::lanes) throw SpecError("a fingerprint filter needs lane hashing");
  if (spec.core.size() != kCoreSize) throw SpecError("a fingerprint filter has eight numbers in its core");
  const uint64_t lines = spec.core[0], remainder = spec.core[1], quotients = spec.core[2], group = spec.core[3];
  const uint64_t rest = spec.core[4], limit = spec.core[5];
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (remainder < 4 || remainder > 28) throw SpecError("remainder must be 4 … 28");
  if (quotients < 32 || quotients > 64) throw SpecError("quotients must be 32 … 64");
  if (group < 1 || group > 16) throw SpecError("group must be 1 … 16");
  if (lines < 1 || lines > kMost || lines % (16 * group) != 0)
    throw SpecError("lines must be a multiple of 16 groups, 2^48 at most");
  if (static_cast<uint128>(lines) * quotients << remainder > uint64_t{1} << 63)
    throw SpecError("there may be 2^63 fingerprints at most");
  if (rest > kMost) throw SpecError("rest must be 0 … 2^48");
  if (limit < 1 || limit > kMost) throw SpecError("limit must be 1 … 2^48");
  if (spec.core[6] > 1) throw SpecError("set must be 0 or 1");
  if (spec.core[7] > remainder - 4) throw SpecError("a remainder must keep four bits when it has doubled");
  if (lines > kMost >> spec.core[7]) throw SpecError("there may be 2^48 lines at most, doublings included");
  return 8 * (kStateWords + kLineWords * (lines + lines / group + lines / (16 * group)) + rest);
}

FingerprintFilter::FingerprintFilter(Spec spec, Bits bits)
    : Filter(std::move(spec), std::move(bits)),
      is_set_(spec_.core[6] != 0),
      view_(view_of(spec_, bits_.words())),
      rest_(rest_words(view_), view_.state + 2, spec_.core[4]),
      loops_(&kernel().fingerprint(static_cast<uint32_t>(spec_.core[1]))) {
  view_.rest = &rest_;
  if (!bits_.read_only()) rest_.reserve_for(1);
  set_one(own_one());
}

OneKey FingerprintFilter::own_one() const {
  OneKey one = loops_->one.of(&view_);
  if (is_set_) one.add_to = one.add_new_to;
  return one;
}

void FingerprintFilter::swap_content(FingerprintFilter& other) noexcept {
  std::swap(spec_, other.spec_);
  std::swap(bits_, other.bits_);
  std::swap(view_, other.view_);
  std::swap(view_.rest, other.view_.rest);  // back: each is its filter's own
  rest_.swap(other.rest_);
  std::swap(loops_, other.loops_);
}

class FingerprintFilter::Adding {
 public:
  // Throws before anything changes.
  Adding(FingerprintFilter& f, size_t keys, bool may_refuse) : f_(f), keys_(may_refuse ? keys : 0) {
    const std::lock_guard lock(f.rest_.mutex);
    f.rest_.reserve_for(f.adding_ + 1);
    f.refused_.reserve(f.may_refuse_ + keys_);
    ++f.adding_;
    f.may_refuse_ += keys_;
  }
  Adding(const Adding&) = delete;
  Adding& operator=(const Adding&) = delete;
  ~Adding() {
    const std::lock_guard lock(f_.rest_.mutex);
    --f_.adding_;
    f_.may_refuse_ -= keys_;
  }
  void refuse(const uint64_t* digests, size_t n) {
    f_.refused_.note();
    const std::lock_guard lock(f_.rest_.mutex);
    f_.refused_.add(digests, n);
  }

 private:
  FingerprintFilter& f_;
  size_t keys_;
};

void FingerprintFilter::add_items(const uint64_t* digests, size_t n) {
  Adding adding(*this, n, true);
  const size_t added = refused_.any() ? 0 : loops_->add_many(view_, digests, n);
  if (added < n) adding.refuse(digests + added, n - added);
}
void FingerprintFilter::add_new_items(const uint64_t* digests, size_t n, uint8_t* added) {
  const Adding adding(*this, n, false);
  const size_t treated = refused_.any() ? 0 : loops_->add_new_many(view_, digests, n, added);
  if (treated == n) return;
  refused_.note();
  std::fill(added + treated, added + n, uint8_t{0});
}
void FingerprintFilter::remove_items(const uint64_t* digests, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (!refused_.take(digests[i])) remove(digests[i]);
}

void FingerprintFilter::fingerprints(uint64_t block, std::vector<uint64_t>& out) const {
  ascending_of_block(view_, rest_.stored(), block, out);
}

std::vector<uint64_t> FingerprintFilter::merge_space(const Filter& other) const {
  try {
    return combined(other, is_set_ ? SetOperation::unite : SetOperation::add);
  } catch (const FingerprintsDoNotFit&) {
    throw SpecError("cannot merge: the two filters hold more keys than one has room for. Build both for more keys");
  }
}

void FingerprintFilter::combine(const Filter& other, SetOperation operation) {
  std::vector<uint64_t> space = combined(other, operation);
  merge_in(other, space);
}

std::vector<uint64_t> FingerprintFilter::combined(const Filter& other_filter, SetOperation operation) const {
  require_same_structure(other_filter);
  const auto& other = static_cast<const FingerprintFilter&>(other_filter);
  std::vector<uint64_t> space(bits_.size());
  build_blocks(view_of(spec_, space.data()), spec_.core[4], 1, [&](uint64_t block, BlockKeys& keys) {
    fingerprints(block, keys.mine);
    other.fingerprints(block, keys.theirs);
    keys.all.clear();
    const auto use = [&](auto algorithm) {
      algorithm(keys.mine.begin(), keys.mine.end(), keys.theirs.begin(), keys.theirs.end(),
                std::back_inserter(keys.all));
    };
    switch (operation) {
      case SetOperation::add: return use([](auto... x) { std::merge(x...); });
      case SetOperation::unite: return use([](auto... x) { std::set_union(x...); });
      case SetOperation::subtract: return use([](auto... x) { std::set_difference(x...); });
      case SetOperation::differ: return use([](auto... x) { std::set_symmetric_difference(x...); });
    }
  });
  return space;
}

void FingerprintFilter::refill(const FingerprintFilter& from, uint32_t threads) {
  const FingerprintView &to = view_, &source = from.view_;
  if (least_of_block(to, blocks()) != least_of_block(source, from.blocks()) || is_set_ != from.is_set_ ||
      to.quotients != source.quotients || to.group != source.group || spec_.seed != from.spec_.seed || state()[0] != 0)
    throw SpecError("the filter cannot hold the fingerprints of the other one");
  build_blocks(to, spec_.core[4], threads, [&](uint64_t block, BlockKeys& keys) {
    const uint64_t first = least_of_block(to, block), end = least_of_block(to, block + 1);
    const uint64_t per_block = least_of_block(source, 1);
    keys.all.clear();
    for (uint64_t b = first / per_block; b < (end + per_block - 1) / per_block; ++b) {
      from.fingerprints(b, keys.mine);
      const auto low = std::lower_bound(keys.mine.begin(), keys.mine.end(), first);
      keys.all.insert(keys.all.end(), low, std::lower_bound(low, keys.mine.end(), end));
    }
  });
}

void FingerprintFilter::merge_in(const Filter&, std::vector<uint64_t>& space) {
  std::copy(space.begin(), space.end(), bits_.words());
}

bool FingerprintFilter::holds_the_same(const Filter& other_filter) const {
  const auto& other = static_cast<const FingerprintFilter&>(other_filter);  // of the same structure
  if (is_settled() && other.is_settled()) return Filter::holds_the_same(other);
  std::vector<uint64_t> mine, theirs;
  for (uint64_t block = 0; block < blocks(); ++block) {
    fingerprints(block, mine);
    other.fingerprints(block, theirs);
    if (mine != theirs) return false;
  }
  return true;
}

uint64_t FingerprintFilter::set_bits() const {
  uint64_t different = 0;
  std::vector<uint64_t> all;
  for (uint64_t block = 0; block < blocks(); ++block) {
    fingerprints(block, all);
    different += static_cast<uint64_t>(std::unique(all.begin(), all.end()) - all.begin());
  }
  return different;
}

std::vector<uint64_t> FingerprintFilter::level_histogram(uint32_t level) const {
  if (level > 2) throw SpecError("a fingerprint filter has three levels");
  return fingerprints::level_histogram(view_, level);
}

std::vector<uint64_t> FingerprintFilter::state() const { return {view_.state[0], view_.state[2]}; }

std::string FingerprintFilter::check(bool thorough) const {
  const uint64_t* state = view_.state;
  if (state[0] > view_.limit) return "more copies than the filter takes";
  if (state[2] > spec_.core[4]) return "more entries of the rest than there is room for";
  if (state[1] != 0 || std::any_of(state + 3, state + kStateWords, [](uint64_t word) { return word != 0; }))
    return "unused words of the state are set";
  return thorough ? broken_levels(view_, rest_.stored(), spec_.core[4], state[0], is_set_) : std::string();
}

namespace {
std::unique_ptr<Filter> make_fingerprint(Spec spec, Bits bits) {
  if (spec.core[7] == 0) return make_family<FingerprintFilter>(std::move(spec), std::move(bits));
  return make_family<GrowingFingerprintFilter>(std::move(spec), std::move(bits));
}
}  // namespace

extern constinit const KindRow kFingerprintKind = {
    .kind = Kind::fingerprint,
    .name = "fingerprint",
    .payload_bytes = FingerprintFilter::payload_bytes,
    .make_filter = make_fingerprint,
};

}  // namespace evenbins
