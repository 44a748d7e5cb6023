// Unsigned integers of 128 bits for compilers that have none (compiler.hpp); EVENBINS_NO_INT128 asks for them
// everywhere, so that their tests need no such compiler.
//
// The same operations as the built-in type, and no others than the core uses. Products are fast; quotients are not,
// bit by bit, since no inner loop divides.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
#endif

namespace evenbins {

class uint128 {
 public:
  uint128() = default;
  constexpr uint128(uint64_t low) : low_(low), high_(0) {}  // NOLINT: as the built-in type
  constexpr uint128(uint64_t high, uint64_t low) : low_(low), high_(high) {}

  template <std::integral T>
  explicit constexpr operator T() const {
    if constexpr (std::is_same_v<T, bool>) return (low_ | high_) != 0;
    return static_cast<T>(low_);
  }

  friend constexpr bool operator==(uint128 a, uint128 b) { return a.low_ == b.low_ && a.high_ == b.high_; }
  friend constexpr std::strong_ordering operator<=>(uint128 a, uint128 b) {
    return a.high_ != b.high_ ? a.high_ <=> b.high_ : a.low_ <=> b.low_;
  }
  friend constexpr uint128 operator&(uint128 a, uint128 b) { return {a.high_ & b.high_, a.low_ & b.low_}; }
  friend constexpr uint128 operator|(uint128 a, uint128 b) { return {a.high_ | b.high_, a.low_ | b.low_}; }
  friend constexpr uint128 operator^(uint128 a, uint128 b) { return {a.high_ ^ b.high_, a.low_ ^ b.low_}; }
  constexpr uint128 operator~() const { return {~high_, ~low_}; }
  constexpr uint128 operator-() const { return uint128(0) - *this; }

  constexpr uint128 operator<<(uint64_t by) const {  // by 0 … 127
    if (by >= 64) return {low_ << (by - 64), 0};
    return by == 0 ? *this : uint128(high_ << by | low_ >> (64 - by), low_ << by);
  }
  constexpr uint128 operator>>(uint64_t by) const {
    if (by >= 64) return {0, high_ >> (by - 64)};
    return by == 0 ? *this : uint128(high_ >> by, low_ >> by | high_ << (64 - by));
  }

  friend constexpr uint128 operator+(uint128 a, uint128 b) {
    const uint64_t low = a.low_ + b.low_;
    return {a.high_ + b.high_ + (low < a.low_), low};
  }
  friend constexpr uint128 operator-(uint128 a, uint128 b) {
    return {a.high_ - b.high_ - (a.low_ < b.low_), a.low_ - b.low_};
  }
  friend constexpr uint128 operator*(uint128 a, uint128 b) {
    const uint128 product = product_of(a.low_, b.low_);
    return {product.high_ + a.high_ * b.low_ + a.low_ * b.high_, product.low_};
  }
  friend constexpr uint128 operator/(uint128 a, uint128 b) {
    if ((a.high_ | b.high_) == 0) return a.low_ / b.low_;
    uint128 quotient = 0, rest = 0;
    for (uint32_t bit = 128; bit-- > 0;) {
      const bool carry = rest.high_ >> 63 != 0;
      rest = rest << 1 | (a >> bit & 1);
      if (!carry && rest < b) continue;
      rest = rest - b;
      quotient = quotient | uint128(1) << bit;
    }
    return quotient;
  }

  constexpr uint128& operator+=(uint128 b) { return *this = *this + b; }
  constexpr uint128& operator-=(uint128 b) { return *this = *this - b; }
  constexpr uint128& operator&=(uint128 b) { return *this = *this & b; }
  constexpr uint128& operator|=(uint128 b) { return *this = *this | b; }
  constexpr uint128& operator^=(uint128 b) { return *this = *this ^ b; }
  constexpr uint128& operator<<=(uint64_t by) { return *this = *this << by; }
  constexpr uint128& operator>>=(uint64_t by) { return *this = *this >> by; }

 private:
  static constexpr uint128 product_of(uint64_t a, uint64_t b) {
#if defined(_MSC_VER) && defined(_M_X64)
    if (!std::is_constant_evaluated()) {
      uint64_t high;
      const uint64_t low = _umul128(a, b, &high);
      return {high, low};
    }
#endif
    constexpr uint64_t kHalf = 0xFFFFFFFF;
    const uint64_t low = (a & kHalf) * (b & kHalf), left = (a >> 32) * (b & kHalf), right = (a & kHalf) * (b >> 32);
    const uint64_t middle = (low >> 32) + (left & kHalf) + (right & kHalf);
    return {(a >> 32) * (b >> 32) + (left >> 32) + (right >> 32) + (middle >> 32), a * b};
  }

  uint64_t low_, high_;
};

}  // namespace evenbins
