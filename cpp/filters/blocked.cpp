#include "evenbins/blocked.hpp"

namespace evenbins {

extern constinit const KindRow kBlockedKind = {
    .kind = Kind::blocked,
    .name = "blocked",
    .payload_bytes = BlockedBloomFilter::payload_bytes,
    .make_filter = make_family<BlockedBloomFilter>,
};

}  // namespace evenbins
