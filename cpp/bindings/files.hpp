// Structures to bytes and files, and back: the same for all that have spec(), bits() and check(thorough).
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "access.hpp"
#include "arrays.hpp"
#include "evenbins/format.hpp"
#include "readers.hpp"

namespace evenbins::python {

// From the bytes of a file, by make(spec, bits). `mapped`: the bits stay where they are, and the structure is
// read-only; otherwise they are copied. `verify` checks the payload too: of what is copied the copy, since somebody may
// write to the file, or to the caller's bytes, meanwhile.
template <typename Make>
auto from_file(nb::handle data, uint32_t kind, bool mapped, bool verify, Make&& make) {
  auto buffer = std::shared_ptr<Buffer>(new Buffer(), [](Buffer* b) {
    const GilAcquire hold;
    delete b;
  });
  if (!buffer->acquire(data.ptr(), PyBUF_SIMPLE)) throw nb::python_error();
  const auto* bytes = static_cast<const uint8_t*>(buffer->view.buf);
  const GilRelease free;
  Header header = read_header(bytes, static_cast<uint64_t>(buffer->view.len));
  if (static_cast<uint32_t>(header.spec.kind) != kind)
    throw FormatError("the file holds another kind of filter (" +
                      std::to_string(static_cast<uint32_t>(header.spec.kind)) +
                      "): use evenbins.load or evenbins.open");
  const uint8_t* payload = bytes + header.payload_offset;
  const bool aligned = reinterpret_cast<uintptr_t>(payload) % 8 == 0;
  Bits bits =
      mapped && aligned ? Bits::borrowed(payload, header.payload_bytes, buffer) : Bits::zeroed(header.payload_bytes);
  if (!bits.read_only()) std::memcpy(bits.words(), payload, header.payload_bytes);
  if (verify) verify_payload(header, bits.words());
  auto made = make(std::move(header.spec), std::move(bits));
  if (const std::string broken = made->check(verify); !broken.empty()) throw FormatError(broken);
  return made;
}

// What a structure does before it is written: counters that would not be believed when it is read are lowered, growth is
// completed. The caller has Access.
template <typename Object, typename Structure>
void settle(Object& turns, Structure& structure) {
  if constexpr (requires { structure.settle(); }) structure.settle();
  if constexpr (requires { structure.is_settled(); }) {
    if (structure.is_settled()) return;
    unless_reading(turns);
    wait_for_readers(turns);
    structure.settle(1);
  }
}

// The bytes of the file of the structure that find() returns, which is called when nobody can change or replace it.
template <typename Object, typename Find>
nb::object file_bytes_of(Object& turns, Find&& find) {
  nb::object bytes;
  const Access access(turns);
  auto& structure = find();
  settle(turns, structure);
  const Bits& bits = structure.bits();
  const std::vector<uint8_t> header = write_header(structure.spec(), bits.words(), bits.bytes());
  char* out;
  {
    const GilAcquire hold;
    bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(header.size() + bits.bytes())));
    if (!bytes.is_valid()) throw nb::python_error();
    out = PyBytes_AS_STRING(bytes.ptr());
  }
  std::memcpy(out, header.data(), header.size());
  std::memcpy(out + header.size(), bits.words(), bits.bytes());
  return bytes;
}

template <typename Object, typename Structure>
nb::object file_bytes(Object& turns, Structure& structure) {
  return file_bytes_of(turns, [&]() -> Structure& { return structure; });
}

// Writes the whole file to an open descriptor. No writer gets between the checksum and the bits.
template <typename Object, typename Structure>
void write_file(Object& turns, Structure& structure, int descriptor) {
  int error = 0;
  {
    const Access access(turns);
    settle(turns, structure);
    const Bits& bits = structure.bits();
    const std::vector<uint8_t> header = write_header(structure.spec(), bits.words(), bits.bytes());
    const auto write_all = [&](const void* data, uint64_t size) {
      const auto* p = static_cast<const char*>(data);
      while (size > 0 && error == 0) {
        const int64_t n = platform::write_on(descriptor, p, std::min<uint64_t>(size, 1 << 30));
        if (n < 0) {
          if (errno != EINTR) error = errno;
        } else {
          p += n;
          size -= static_cast<uint64_t>(n);
        }
      }
    };
    write_all(header.data(), header.size());
    write_all(bits.words(), bits.bytes());
  }
  if (error != 0) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
}

}  // namespace evenbins::python
