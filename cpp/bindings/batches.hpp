// All items of a table to a Python function, in batches, while nobody changes the table.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>

#include "readers.hpp"
#include "sources.hpp"

namespace evenbins::python {

// Calls store(keys, values), arrays of words, for at most `most` items at a time. next(n, keys, values) copies the next
// n items, or the rest if there are fewer, and returns how many; total() is the number of all. Look-ups go on
// meanwhile. A change waits until the last call of `store` has returned; a change by `store` itself raises
// RuntimeError.
template <typename Total, typename Next>
void store_batches(ReadersAndWriter& turns, nb::callable store, uint64_t most, uint32_t key_words, Total&& total,
                   Next&& next) {
  const Reading reading(turns);
  const uint64_t batch = std::clamp<uint64_t>(total(), 1, std::max<uint64_t>(most, 1));
  for (uint64_t copied = batch; copied == batch;) {
    Answers<uint64_t> keys, values;
    uint64_t* k = keys.extend(batch * key_words);
    copied = next(batch, k, values.extend(batch));
    if (copied == 0) break;
    keys.truncate(copied * key_words);
    values.truncate(copied);
    const GilAcquire hold;
    call_object(store, nb::cast(keys.release<uint64_t>()), nb::cast(values.release<uint64_t>()));
  }
}

}  // namespace evenbins::python
