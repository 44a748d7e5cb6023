// HyperLogLog: how many different keys were there? In a few kilobytes, to about one percent (Flajolet, Fusy, Gandouet,
// Meunier 2007; Heule, Nunkesser, Hall 2013; Ertl 2017).
//
//     digest   │ index: p bits │ 0 0 0 1 …   the first p bits choose one of m = 2^p registers, which keeps the longest
//                               ─rank 4─     run of zeros that it saw behind them, plus one (the rank)
//
// Few keys are kept in a *sparse* form: a sorted list of (index of 25 bits, rank) for each, which says more than the
// registers do. When the list is full, m/16 entries, the sketch becomes *dense*: one byte for each register, the same
// registers that it would have had from the beginning. Which form a sketch has follows from its keys, so the same keys
// in any order give the same bytes.
//
// Integer core: [precision p, form (0 sparse, 1 dense)]. Payload: sparse, the number of entries (a word) and room for
// them, index·64 + rank in four bytes, ascending, zeros behind the last; dense, the registers.
//
// The estimate is made of the histogram of registers, or the number of entries, in Python (theory/distinct.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evenbins/bits.hpp"
#include "evenbins/parallel.hpp"
#include "evenbins/spec.hpp"

namespace evenbins {

class HyperLogLog {
 public:
  static constexpr uint64_t kLeastPrecision = 4, kMostPrecision = 18, kSparsePrecision = 25;

  static uint64_t payload_bytes(const Spec& spec);  // validates the spec (SpecError)
  static uint64_t entries_of(uint64_t precision) { return precision < 6 ? 4 : (uint64_t{1} << precision) / 16; }

  HyperLogLog(Spec spec, Bits bits) : spec_(std::move(spec)), bits_(std::move(bits)) {}

  const Spec& spec() const { return spec_; }
  const Bits& bits() const { return bits_; }
  bool dense() const { return spec_.core[1] != 0; }
  uint64_t entries() const { return dense() ? 0 : bits_.words()[0]; }

  void add_many(const uint64_t* digests, size_t n);
  // By several threads, each with registers of its own. Returns the number of keys added: all, or none if the pulse
  // stopped it. BadKey: the keys before the bad one are in.
  uint64_t add_all(const Digests& keys, uint32_t threads, const Pulse& pulse);

  void merge(const HyperLogLog& other);  // SpecError when precision or seed differ
  void clear();
  std::unique_ptr<HyperLogLog> copy() const { return std::make_unique<HyperLogLog>(spec_, bits_.copy()); }
  bool operator==(const HyperLogLog& other) const { return spec_.same_structure(other.spec_) && bits_ == other.bits_; }

  std::vector<uint64_t> histogram()
      const;                               // how many registers are 0, 1, … 65 − p; of a sparse one as if it were dense
  std::string check(bool thorough) const;  // as Filter's

 private:
  uint64_t precision() const { return spec_.core[0]; }
  uint64_t registers() const { return uint64_t{1} << precision(); }
  uint8_t* dense_registers() { return reinterpret_cast<uint8_t*>(bits_.words()); }
  const uint8_t* dense_registers() const { return reinterpret_cast<const uint8_t*>(bits_.words()); }
  const uint32_t* sparse_entries() const { return reinterpret_cast<const uint32_t*>(bits_.words() + 1); }
  void raise_to(const uint8_t* registers);  // each register to at least this
  bool add_sparse(uint32_t entry);          // false: the list is full, and nothing has changed
  void become_dense();
  template <typename F>
  void each_register_of_entries(F&& f) const;

  Spec spec_;
  Bits bits_;
};

}  // namespace evenbins
