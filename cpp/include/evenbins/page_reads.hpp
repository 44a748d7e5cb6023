// Runs of neighbouring pages, read by few threads with many reads under way.
//
//     run ──▶ in the system's cache: used at once, by the thread that asked
//        └──▶ not there: the system is told to fetch it, and it joins the thread's queue
//     a queue that is full ──▶ its oldest run is read, which waits for the disk, and used
//
// The queues of all threads together hold `in_flight` runs: that many reads are under way, however few threads there
// are. Threads do nothing but check and search pages, so more of them than cores gain nothing; a call with few runs
// starts none. Where the system does not tell what it has in its cache (Disk::knows_cache), each read under way needs
// a thread that waits for it: `in_flight` of them, of which `threads` check and search at a time.
//
// Measured (Linux 6.18, ext4, 18,637 pages of 600 MB, none cached): 32 reads under way cost 126 ms of CPU time with one
// thread and queue, 230 ms with 32 threads; ten pages that are all cached 10 µs against 1.1 ms.
#pragma once

#include <cstdint>
#include <functional>

#include "evenbins/page_store.hpp"

namespace evenbins {

// How much of a bulk call is done at the same time; each 1 … 1024.
struct Reads {
  uint32_t in_flight, threads;

  // In one word, as Python passes it: in_flight + 2^16 · threads.
  static Reads of_word(uint32_t word) { return {word & 0xFFFF, word >> 16}; }
};

struct PageRun {
  uint64_t first, count;
};

// Calls use(i, pages of run_of(i)) for i < n, in no particular order and by several threads. The calling thread polls
// `pulse` between runs; false if that stopped the work. Throws what a read or `use` threw.
bool read_runs(const PageStore& store, uint64_t n, const Reads& reads, const std::function<bool()>& pulse,
               const std::function<PageRun(uint64_t)>& run_of,
               const std::function<void(uint64_t, const uint8_t*)>& use);

}  // namespace evenbins
