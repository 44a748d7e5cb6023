// Adding to a filter that is larger than the caches, part by part.
//
// A key of a standard filter has k bits anywhere: k lines of memory for each key, in any order. Here a pass over some
// millions of keys first sorts their items by the part of the memory to which they lead, and then adds part after part,
// each of which fits into a core's own cache:
//
//     keys ──▶ items ──▶ for each part a line of 16 ──full──▶ chunks of the part, in memory ──▶ the part, in the cache
//
// An item is four bytes there, its distance from the first item of its part, so that eight bytes go through memory, in
// long stretches, where a line of 64 bytes went to the core and back. While a part is added, the next one is on its way.
//
// Where the order of items does not matter: any bits or counters. Threads sort shares of the keys, each into chunks of
// its own, and then take parts. If a pass is stopped, or one of its keys is bad, nothing of it has been added.
//
// Chunks take half as much memory as the filter, 1 GiB at most (or a sixteenth of a filter of more than 16 GiB). With
// less, passes are shorter and each line of the filter goes through the caches more often: with a quarter a tenth more
// time, with an eighth a quarter.
//
// Tried: parts of 256 KiB to 4 MiB, alike except for the largest; chunks of 2 KiB instead of 8, a fifth slower; all lines
// of a part asked for when its turn comes, instead of while the one before is added: twice the time for adding.
#pragma once

#include <cstdint>

#include "evenbins/filter.hpp"
#include "evenbins/parallel.hpp"

namespace evenbins {

// Whether that pays off: a filter beyond the caches, and enough keys to touch most of its lines.
bool pays_to_partition(Filter& filter, uint64_t keys);

// Returns how many keys are in: all; or those of the passes before the pulse stopped one (`stopped`), before one with a
// bad key, or before there was no memory.
uint64_t add_partitioned(Filter& filter, const Digests& keys, uint32_t threads, const Pulse& pulse, bool& stopped);

}  // namespace evenbins
