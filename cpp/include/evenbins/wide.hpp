// Exact arithmetic of weights: the decimal number that a double was written as, and unsigned integers of 320 bits.
//
// 0.1 is a tenth here, not 3602879701896397 / 2^55: a weight is read as the shortest decimal that rounds to it, which
// is what Python prints. It has at most 17 digits.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "evenbins/compiler.hpp"

namespace evenbins {

struct Decimal {  // digits·10^exponent; digits do not end in 0
  uint64_t digits = 0;
  int exponent = 0, magnitude = 0;  // it is below 10^magnitude, and at least a tenth of that
};

// Whether the double nearest to digits·10^exponent is x. (No point, which some locales write as a comma.)
inline bool is_written_as(double x, uint64_t digits, int exponent) {
  char text[40];
  std::snprintf(text, sizeof text, "%llue%d", static_cast<unsigned long long>(digits), exponent);
  return std::strtod(text, nullptr) == x;
}

// The fewest digits that are read as x, and of those the nearest. (std::to_chars, which macOS has from 13.3 on.)
inline Decimal shortest_decimal(double x) {  // x > 0 and finite
  Decimal d;
  for (int count = 1;; ++count) {  // 17 are always enough
    char text[40];
    std::snprintf(text, sizeof text, "%.*e", count - 1, x);
    const char* at = text;
    for (d.digits = 0; *at != 'e'; ++at)
      if (*at >= '0' && *at <= '9') d.digits = 10 * d.digits + static_cast<uint64_t>(*at - '0');
    d.exponent = std::atoi(at + 1) - (count - 1);
    if (is_written_as(x, d.digits, d.exponent)) break;
    if (is_written_as(x, d.digits + 1, d.exponent)) {  // above a power of two there is more room than below
      ++d.digits;
      break;
    }
  }
  for (; d.digits % 10 == 0; d.digits /= 10) ++d.exponent;
  d.magnitude = d.exponent;
  for (uint64_t rest = d.digits; rest != 0; rest /= 10) ++d.magnitude;
  return d;
}

class Wide {  // modulo 2^320
 public:
  constexpr Wide() = default;
  explicit constexpr Wide(uint64_t x) : limbs_{x} {}

  Wide& operator+=(const Wide& other) {
    uint128 sum = 0;
    for (size_t i = 0; i < limbs_.size(); ++i) {
      sum += static_cast<uint128>(limbs_[i]) + other.limbs_[i];
      limbs_[i] = static_cast<uint64_t>(sum);
      sum >>= 64;
    }
    return *this;
  }
  Wide operator*(uint64_t x) const {
    Wide product;
    uint128 carry = 0;
    for (size_t i = 0; i < limbs_.size(); ++i) {
      carry += static_cast<uint128>(limbs_[i]) * x;
      product.limbs_[i] = static_cast<uint64_t>(carry);
      carry >>= 64;
    }
    return product;
  }
  Wide operator*(uint128 x) const {
    Wide high = *this * static_cast<uint64_t>(x >> 64);
    high.limbs_ = {0, high.limbs_[0], high.limbs_[1], high.limbs_[2], high.limbs_[3]};
    return high += *this * static_cast<uint64_t>(x);
  }
  bool operator==(const Wide&) const = default;
  bool operator<(const Wide& other) const {
    for (size_t i = limbs_.size(); i-- > 0;)
      if (limbs_[i] != other.limbs_[i]) return limbs_[i] < other.limbs_[i];
    return false;
  }
  bool below(uint64_t x) const { return (limbs_[1] | limbs_[2] | limbs_[3] | limbs_[4]) == 0 && limbs_[0] < x; }
  uint64_t low() const { return limbs_[0]; }

 private:
  std::array<uint64_t, 5> limbs_{};  // the lowest first
};

// A number in units of 10^exponent: exact unless it is finer than that, then rounded up.
inline Wide in_units(const Decimal& d, int exponent) {
  if (d.exponent < exponent) {
    uint64_t digits = d.digits;
    for (int i = d.exponent; i < exponent && digits > 1; ++i) digits = (digits + 9) / 10;
    return Wide(digits);
  }
  Wide result(d.digits);
  int power = d.exponent - exponent;
  for (; power >= 19; power -= 19) result = result * uint64_t{10'000'000'000'000'000'000U};
  uint64_t rest = 1;
  for (; power > 0; --power) rest *= 10;
  return result * rest;
}

}  // namespace evenbins
