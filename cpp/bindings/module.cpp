// The extension module `evenbins._core`: digests, kernels, sources of keys, filters, sketches.
#include "module.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "evenbins/digest_stretches.hpp"
#include "evenbins/kernel.hpp"
#include "evenbins/spec.hpp"
#include "evenbins/threads.hpp"
#include "evenbins/xxh3.hpp"
#include "sources.hpp"

namespace evenbins::python {
namespace {

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Kernel* k : kernels()) names.emplace_back(k->name);
  return names;
}

void require_kernel(const std::string& name) {
  if (use_kernel(name.c_str())) return;
  std::string known;
  for (const std::string& k : kernel_names()) known += (known.empty() ? "" : ", ") + k;
  throw nb::value_error(("no kernel '" + name + "' on this machine; it has: " + known).c_str());
}

uint32_t thread_limit(uint32_t quota) {
  const uint32_t least = std::max(std::min(allowed_cores(), quota), 1u);
  const char* setting = std::getenv("EVENBINS_THREADS");  // Python changes it under the GIL alone
  if (setting == nullptr || *setting == '\0') return least;
  const std::string_view text(setting);
  uint64_t most = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), most);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument || (error == std::errc() && most == 0))
    throw nb::value_error(("the environment variable EVENBINS_THREADS must be a whole number from 1 on, not '" +
                           std::string(text) + "': set it to the most threads that a bulk call may use, or unset it")
                              .c_str());
  return error == std::errc::result_out_of_range ? least : static_cast<uint32_t>(std::min<uint64_t>(least, most));
}

class CollectSink final : public Sink {
 public:
  CollectSink(std::string verb, uint32_t threads) : threads_(threads), verb_(std::move(verb)) {}
  const char* verb() const override { return verb_.c_str(); }
  uint64_t take_all(const Digests& keys, const Pulse& pulse) override {
    const GilRelease free;
    const uint64_t before = digests.size();
    uint64_t* out = digests.extend(keys.size());
    const uint64_t step = uint64_t{threads_} << 16;
    try {
      for (uint64_t start = 0; start < keys.size(); start += step) {
        if (!pulse()) {
          digests.truncate(before + start);
          return start;
        }
        read_digests(keys, start, std::min(step, keys.size() - start), out + start, threads_);
      }
    } catch (const BadKey& bad) {
      digests.truncate(before + bad.index);
      throw;
    }
    return keys.size();
  }
  void take(const uint64_t* d, size_t n, bool) override { std::memcpy(digests.extend(n), d, n * sizeof *d); }
  Answers<uint64_t> digests;

 private:
  uint32_t threads_;
  std::string verb_;
};

nb::object int_of(const Hash128& h) {
  const uint64_t words[2] = {h.low, h.high};
  return nb::steal(_PyLong_FromByteArray(reinterpret_cast<const unsigned char*>(words), 16, 1, 0));
}

}  // namespace

void bind_sources(nb::module_& m) {
  nb::class_<KeySource>(m, "KeySource", "Keys on their way into a bulk call; used once.")
      .def_prop_ro("is_one_stretch", &KeySource::is_one_stretch, "Whether they lie in one stretch of memory.");
  m.def(
      "array_keys",
      [](nb::handle array, char elements, bool swapped) -> KeySource* {
        return new ArraySource(array, elements, swapped);
      },
      nb::arg("array"), nb::arg("elements"), nb::arg("swapped"), nb::rv_policy::take_ownership,
      "Keys of an array, read in place; `elements` is NumPy's dtype.kind, or 'd' for digests.");
  m.def(
      "arrow_stream_keys", [](nb::handle stream) -> KeySource* { return new ArrowSource(stream); }, nb::arg("stream"),
      nb::rv_policy::take_ownership);
  m.def(
      "arrow_array_keys",
      [](nb::handle schema, nb::handle array) -> KeySource* { return new ArrowSource(schema, array); },
      nb::arg("schema"), nb::arg("array"), nb::rv_policy::take_ownership);
  m.def("chosen_column", &chosen_column, nb::arg("stream").none(), nb::arg("schema").none(), nb::arg("array").none(),
        nb::arg("name"),
        nb::sig("def chosen_column(stream: object, schema: object, array: object, name: str) -> object"),
        "The Arrow stream of the column with this name: of a stream of tables, or of a schema and a table.");
  m.def(
      "line_keys",
      [](nb::handle text, char separator, bool crlf) -> KeySource* { return new LineSource(text, separator, crlf); },
      nb::arg("text"), nb::arg("separator"), nb::arg("crlf"), nb::rv_policy::take_ownership,
      "Keys that are the lines of a block of bytes, read in place.");
  m.def(
      "item_keys", [](nb::handle items) -> KeySource* { return new ItemSource(items); }, nb::arg("items"),
      nb::rv_policy::take_ownership, "Keys of any iterable.");

  m.def(
      "digest",
      [](nb::handle key, uint64_t seed) {
        uint64_t out;
        if (!digest_of(key.ptr(), Hasher(seed), out)) throw nb::python_error();
        return out;
      },
      nb::arg("key").none(), nb::arg("seed"));
  m.def(
      "digest_from",
      [](KeySource& keys, uint64_t seed, uint32_t threads) {
        CollectSink sink("hashed", threads);
        keys.run(Hasher(seed), sink);
        return sink.digests.release<uint64_t>();
      },
      nb::arg("keys"), nb::arg("seed"), nb::arg("threads") = 1,
      nb::sig("def digest_from(keys: KeySource, seed: int, threads: int = 1) -> numpy.typing.NDArray[numpy.uint64]"));
  m.def(
      "digest_next",
      [](KeySource& keys, uint64_t seed, uint64_t first, uint64_t limit, std::string verb, uint32_t threads) {
        CollectSink sink(std::move(verb), threads);
        sink.taken = first;
        nb::object failure = nb::none();
        bool more = false;
        try {
          more = keys.run_some(Hasher(seed), sink, limit);
        } catch (nb::python_error& error) {
          failure = nb::borrow(error.value());
        }
        return nb::make_tuple(sink.digests.release<uint64_t>(), more, failure);
      },
      nb::arg("keys"), nb::arg("seed"), nb::arg("first"), nb::arg("limit"), nb::arg("verb"), nb::arg("threads") = 1,
      nb::sig("def digest_next(keys: KeySource, seed: int, first: int, limit: int, verb: str, threads: int = 1) -> "
              "tuple[numpy.typing.NDArray[numpy.uint64], bool, BaseException | None]"),
      "Digests of at most `limit` more keys, of which the first is number `first`; whether others may follow; and the "
      "error of the key after them, if there is one, which says that those before it have been `verb`.");
  m.def(
      "xxh3_64", [](nb::bytes data, uint64_t seed) { return xxh3_64(data.c_str(), data.size(), seed); },
      nb::arg("data"), nb::arg("seed") = 0);
  m.def(
      "xxh3_128", [](nb::bytes data, uint64_t seed) { return int_of(xxh3_128(data.c_str(), data.size(), seed)); },
      nb::arg("data"), nb::arg("seed") = 0, nb::sig("def xxh3_128(data: bytes, seed: int = 0) -> int"));

  m.def(
      "kinds",
      [] {
        nb::dict names;
        for (const KindRow* row : kind_rows()) names[nb::int_(static_cast<uint32_t>(row->kind))] = row->name;
        return names;
      },
      nb::sig("def kinds() -> dict[int, str]"), "Return the kinds of structures by their numbers in files.");
  m.def("kernels", &kernel_names, "The kernels this machine can run, slowest first.");
  m.def("kernel", [] { return std::string(kernel().name); }, "The kernel in force.");
  m.def("use_kernel", &require_kernel, nb::arg("name"));
  m.def("thread_limit", &thread_limit, nb::arg("quota"),
        "Return how many threads a bulk call may use: the least of the cores on which the calling thread may run, the "
        "quota, and EVENBINS_THREADS.");
  m.def(
      "line_reads",
      [](WordArray words, WordArray keys, uint64_t seed) {
        const IntHash hash(seed);
        const GilRelease free;
        return kernel().line_reads(hash, words.data(), words.size() / 8, keys.data(), keys.size());
      },
      nb::arg("words"), nb::arg("keys"), nb::arg("seed") = 0,
      nb::sig("def line_reads(words: numpy.typing.NDArray[numpy.uint64], keys: numpy.typing.NDArray[numpy.uint64], "
              "seed: int = 0) -> int"),
      "Hashes each key, prefetches and reads one 64-byte line for it, and nothing else: the raw limit of a "
      "one-read filter. Returns how many lines were zero.");
  m.def(
      "line_updates",
      [](nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> words, WordArray keys, uint64_t seed) {
        const IntHash hash(seed);
        const GilRelease free;
        kernel().line_updates(hash, words.data(), words.size() / 8, keys.data(), keys.size());
      },
      nb::arg("words"), nb::arg("keys"), nb::arg("seed") = 0,
      nb::sig("def line_updates(words: numpy.typing.NDArray[numpy.uint64], keys: numpy.typing.NDArray[numpy.uint64], "
              "seed: int = 0) -> None"),
      "The same, and changes a word of each line: the raw limit of a filter that adds and removes.");
}

}  // namespace evenbins::python

NB_MODULE(_core, m) {
  using namespace evenbins::python;
  m.doc() = "The compiled core of evenbins. Private: use the package `evenbins`.";
  // For tools/sanitize.py: otherwise a daemon thread that ends with the process would look like a leak.
  nb::set_leak_warnings(std::getenv("EVENBINS_LEAK_WARNINGS") != nullptr);
  const nb::module_ numpy = nb::module_::import_("numpy");
  types.ndarray = numpy.attr("ndarray").inc_ref().ptr();
  types.generic = numpy.attr("generic").inc_ref().ptr();
  types.numpy_bool = numpy.attr("bool_").inc_ref().ptr();
  types.error = PyErr_NewExceptionWithDoc("evenbins.EvenbinsError", "Base of all exceptions that evenbins defines.",
                                          nullptr, nullptr);
  if (types.error == nullptr) throw nb::python_error();
  m.attr("EvenbinsError") = nb::handle(types.error);
  types.key_range_error = PyErr_NewExceptionWithDoc(
      "evenbins.KeyRangeError", "An int that is no key: it does not lie in -2**63 ... 2**64-1.",
      nb::make_tuple(nb::handle(types.error), nb::handle(PyExc_ValueError), nb::handle(PyExc_TypeError)).ptr(),
      nullptr);
  if (types.key_range_error == nullptr) throw nb::python_error();
  m.attr("KeyRangeError") = nb::handle(types.key_range_error);

  if (const char* forced = std::getenv("EVENBINS_KERNEL"); forced != nullptr && *forced != '\0') {
    try {
      require_kernel(forced);
    } catch (const std::exception& error) {
      throw nb::import_error((std::string("EVENBINS_KERNEL: ") + error.what()).c_str());
    }
  }
  bind_sources(m);
  bind_filters(m);
  bind_fuse(m);
  bind_fingerprint(m);
  bind_sketches(m);
  bind_hyperloglog(m);
  bind_tables(m);
  bind_chained(m);
  bind_rings(m);
  bind_routing(m);
  bind_summaries(m);
  bind_paged(m);
  bind_sharding(m);
  bind_placement(m);
  bind_stages(m);
  bind_lines(m);
  bind_latency(m);
  bind_leftover(m);
}
