// Shards (evenbins/sharding.hpp): words of digests and back, and digests put in order of their shards.
#include "evenbins/sharding.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "module.hpp"
#include "sources.hpp"

namespace evenbins::python {
namespace {

using Words = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <uint64_t (*F)(uint64_t)>
auto each(Words words) {
  Answers<uint64_t> found;
  {
    const nb::gil_scoped_release free;
    uint64_t* out = found.extend(words.size());
    for (size_t i = 0; i < words.size(); ++i) out[i] = F(words.data()[i]);
  }
  return found.release<uint64_t>();
}

// A counting sort, stable: keys of one shard keep their order. The shard is computed twice, which is cheaper than
// keeping it: the memory it would take costs more than the mixing.
nb::tuple split_by_shard(Words digests, uint32_t shards, bool positions) {
  if (shards == 0) throw nb::value_error("shards must be 1 at least");
  Answers<uint64_t> grouped, starts;
  Answers<int64_t> origin;
  {
    const nb::gil_scoped_release free;
    const uint64_t* d = digests.data();
    const size_t n = digests.size();
    std::vector<uint64_t> next(uint64_t{shards} + 1, 0);
    for (size_t i = 0; i < n; ++i) ++next[mulhi(shard_word(d[i]), shards) + 1];
    for (uint64_t s = 0; s < shards; ++s) next[s + 1] += next[s];
    std::copy(next.begin(), next.end(), starts.extend(next.size()));
    uint64_t* out = grouped.extend(n);
    int64_t* from = origin.extend(positions ? n : 0);
    for (size_t i = 0; i < n; ++i) {
      const uint64_t at = next[mulhi(shard_word(d[i]), shards)]++;
      out[at] = d[i];
      if (positions) from[at] = static_cast<int64_t>(i);
    }
  }
  return nb::make_tuple(grouped.release<uint64_t>(), starts.release<uint64_t>(), origin.release<int64_t>());
}

uint64_t word_of(uint64_t digest) { return shard_word(digest); }
uint64_t inverse_of(uint64_t word) { return digest_of_shard_word(word); }

}  // namespace

void bind_sharding(nb::module_& m) {
  m.def(
      "shard_of", [](uint64_t digest, uint32_t shards) { return mulhi(shard_word(digest), shards); }, nb::arg("digest"),
      nb::arg("shards"), "The shard of a digest.");
  m.def("shard_words", &each<word_of>, nb::arg("digests"),
        nb::sig("def shard_words(digests: numpy.typing.NDArray[numpy.uint64]) -> numpy.typing.NDArray[numpy.uint64]"),
        "The words that choose the shards.");
  m.def("shard_digests", &each<inverse_of>, nb::arg("words"),
        nb::sig("def shard_digests(words: numpy.typing.NDArray[numpy.uint64]) -> numpy.typing.NDArray[numpy.uint64]"),
        "The inverse of shard_words.");
  m.def("split_by_shard", &split_by_shard, nb::arg("digests"), nb::arg("shards"), nb::arg("positions"),
        nb::sig("def split_by_shard(digests: numpy.typing.NDArray[numpy.uint64], shards: int, positions: bool) -> "
                "tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64], "
                "numpy.typing.NDArray[numpy.int64]]"),
        "The digests shard by shard, where each shard begins, and where each digest stood (if asked for).");
}

}  // namespace evenbins::python
