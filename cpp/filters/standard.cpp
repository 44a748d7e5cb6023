#include "evenbins/bloom.hpp"

namespace evenbins {

extern constinit const KindRow kStandardKind = {
    .kind = Kind::standard,
    .name = "standard",
    .payload_bytes = BloomFilter::payload_bytes,
    .make_filter = make_family<BloomFilter>,
};

}  // namespace evenbins
