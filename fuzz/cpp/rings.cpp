// Files of rings (14): pictures of nodes, slots, keys.
//
// A sparse ring is an array of 2^array_bits places, 256 MiB at most, whatever the file's size: that is its plan, not
// its file. Here arrays above 2^16 places are passed over, for speed.
#include "evenbins/ring.hpp"
#include "harness.hpp"

using namespace evenbins;
using namespace evenbins::fuzz;

namespace {

constexpr size_t kKeys = 8;

struct Pictured {  // a ring with the face of other structures
  std::unique_ptr<Ring> ring;
  std::string check(bool thorough) const { return ring->check(thorough); }
};

std::unique_ptr<Pictured> make(Spec spec, Bits bits) {
  try {
    return std::make_unique<Pictured>(Pictured{std::make_unique<Ring>(spec, bits)});
  } catch (const SpecError& error) {  // as bindings/rings.cpp
    throw FormatError(error.what());
  }
}

bool is_large(const File& file) {
  return file.size() > kCore + 32 && get<uint64_t>(file, kCore + 8) == 2 && get<uint64_t>(file, kCore + 24) > 16;
}

void look(const Ring& ring, Dice& dice) {
  for (size_t i = 0; i < kKeys; ++i) {
    const uint64_t digest = dice.word();
    const uint32_t first = ring.first(digest);
    const std::vector<uint32_t> all = ring.candidates(digest, 3);
    require(all.empty() ? first == Ring::kNone : first == all[0], "the first candidate is not the first probe");
    ring.locate(digest);
  }
  ring.expected_searches(8);
  ring.fingerprint(false);
  ring.fingerprint(true);
  ring.nbytes();
  ring.counters();
  for (const uint32_t id : ring.order()) ring.limit_of(id, ring.size());
}

uint32_t any_node(const Ring& ring, Dice& dice) {
  return ring.order().empty() ? Ring::kNone : ring.order()[dice.below(ring.order().size())];
}

void change(Ring& ring, Dice& dice) {
  const bool caps = ring.config().rate == 0 && ring.config().policy != RingPolicy::plain;
  RingMoves moves;
  std::vector<uint64_t> keys;
  ring.start_audit();
  for (size_t step = 0; step < 12; ++step) {
    const uint32_t id = any_node(ring, dice);
    try {
      switch (dice.below(id == Ring::kNone ? 3 : 12)) {
        case 0:
        case 1: {
          const uint64_t digest = dice.word();
          ring.assign(digest);
          keys.push_back(digest);
          break;
        }
        case 2:
          ring.add_node({"new" + std::to_string(step), 1.0, Ring::kWhole / (1 + dice.below(3)), caps ? 5u : 0u},
                        dice.below(2) == 0, moves);
          break;
        case 3: ring.remove_node(id, moves); break;
        case 4: ring.mark_down(id, moves); break;
        case 5: ring.mark_up(id, moves); break;
        case 6: ring.drain(id); break;
        case 7: ring.set_weight(id, 0.5, Ring::kWhole / 2, caps ? 3 : 0, moves); break;
        case 8: ring.rebalance(dice.below(20), moves); break;
        case 9: ring.compact(moves); break;
        case 10:
          if (!keys.empty()) {
            require(ring.release(keys.back()), "a key that was assigned is not there");
            keys.pop_back();
          }
          break;
        case 11: ring.unlease(ring.lease(dice.word(), nullptr, 0), Ring::kLeaseUnit); break;
      }
    } catch (const RingFull&) {
    } catch (const NoNodes&) {
    } catch (const std::invalid_argument&) {  // too many slots, a name that is taken
      break;
    }
    for (const uint64_t each : keys) require(ring.locate(each) != Ring::kNone, "a key that was assigned is lost");
  }
  require(ring.audit().broken == 0, "a placement broke the bound");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Dice dice(data, size);
  const File raw(data, data + size), file = forged(data, size, {14}, dice.below(16) != 0);
  if (is_large(raw) || is_large(file) || file.size() > kMostPayload) return 0;
  if (auto found = read(raw, false, true, make)) look(*found->ring, dice);
  if (auto found = read(file, false, true, make)) {
    require(saved(found->ring->image()) == file, "saved again, other bytes");
    look(*found->ring, dice);
    change(*found->ring, dice);
    require_sound(*found, "after changes");
    const Ring::Image image = found->ring->image();
    Ring again(image.spec(), image.bits());
    require(saved(again.image()) == saved(image), "read again, another ring");
  }
  return 0;
}
