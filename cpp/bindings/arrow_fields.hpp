// One column of a table: a table is an Arrow array of type struct, or a stream of them.
//
//     Field          a struct array's column as an array: the child's buffers, with the parent's offset, length and nulls
//     FieldStream    a stream of tables as a stream of one of their columns, which any consumer can read
//
// Nothing is copied but bits of nulls, where the struct has nulls of its own. A column keeps its whole table alive until
// it is released: the interface lets a consumer move a child out, but not every producer's children can live alone.
#pragma once

#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrow.hpp"

namespace evenbins::python::arrow {

struct NoSuchColumn : std::runtime_error {  // becomes a KeyError
  using std::runtime_error::runtime_error;
};

inline bool is_table(const Schema& schema) {
  return schema.format != nullptr && std::string_view(schema.format) == "+s" && schema.dictionary == nullptr;
}

inline std::string_view name_of(const Schema& field) { return field.name == nullptr ? "" : field.name; }

inline const Schema& field_of(const Schema& schema, int64_t i) {
  if (schema.children == nullptr || i < 0 || i >= schema.n_children || schema.children[i] == nullptr)
    throw BrokenColumn("the Arrow schema lacks a field");
  return *schema.children[i];
}

// The names of a table's columns, in quotation marks.
inline std::string field_names(const Schema& schema) {
  constexpr int64_t kMost = 20;
  std::string names;
  for (int64_t i = 0; i < schema.n_children; ++i) {
    if (i == kMost) return names + " and " + std::to_string(schema.n_children - kMost) + " more";
    if (i > 0) names += ", ";
    names.append("'").append(name_of(field_of(schema, i))).append("'");
  }
  return names;
}

// The number of the column with this name.
inline int64_t field_named(const Schema& schema, std::string_view name) {
  require_key_extension(schema);
  if (!is_table(schema))
    throw UnsupportedColumn("source must be a table, not a column without names: pass the column itself");
  int64_t found = -1;
  for (int64_t i = 0; i < schema.n_children; ++i) {
    if (name_of(field_of(schema, i)) != name) continue;
    if (found >= 0)
      throw BrokenColumn("name must be of one column, and two are named '" + std::string(name) +
                         "': rename one of them");
    found = i;
  }
  if (found < 0)
    throw NoSuchColumn("name '" + std::string(name) + "': no such column. There are " +
                       (schema.n_children == 0 ? "none" : field_names(schema)));
  return found;
}

// The only column of a table; else an UnsupportedColumn that names them.
inline int64_t only_field(const Schema& schema) {
  require_key_extension(schema);
  if (schema.n_children == 1) return 0;
  if (schema.n_children <= 0) throw UnsupportedColumn("keys must be one column, not a table without columns");
  throw UnsupportedColumn("keys must be one column, not a table of " + std::to_string(schema.n_children) + " (" +
                          field_names(schema) + "): choose one, for example with evenbins.column(keys, '" +
                          std::string(name_of(field_of(schema, 0))) + "')");
}

// A struct array's column as an array, which refers to the struct and to this object.
class Field {
 public:
  Field(const Array& table, int64_t i) {
    require_possible(table);
    if (table.children == nullptr || i >= table.n_children || table.children[i] == nullptr)
      throw BrokenColumn("the Arrow array lacks a column");
    array = *table.children[i];
    array.release = nullptr;
    array.private_data = nullptr;
    require_possible(array);
    if (array.length - table.offset < table.length) throw BrokenColumn("a column of the Arrow table is too short");
    const bool is_part = array.length != table.length;
    array.offset += table.offset;
    array.length = table.length;
    if (is_part && array.null_count != 0) array.null_count = -1;  // unknown
    const void* nulls = table.null_count == 0 || table.n_buffers < 1 ? nullptr : table.buffers[0];
    if (nulls != nullptr && array.n_buffers > 0) add_nulls(static_cast<const uint8_t*>(nulls), table.offset);
  }
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

  Array array;

 private:
  void add_nulls(const uint8_t* rows, int64_t rows_offset) {
    const auto is_set = [](const uint8_t* bits, uint64_t i) { return (bits[i / 8] >> (i % 8) & 1) != 0; };
    const auto* own = array.null_count == 0 ? nullptr : static_cast<const uint8_t*>(array.buffers[0]);
    const auto offset = static_cast<uint64_t>(array.offset), n = static_cast<uint64_t>(array.length);
    validity_.assign((offset + n + 7) / 8, 0);
    for (uint64_t i = 0; i < n; ++i)
      if (is_set(rows, static_cast<uint64_t>(rows_offset) + i) && (own == nullptr || is_set(own, offset + i)))
        validity_[(offset + i) / 8] |= static_cast<uint8_t>(1 << ((offset + i) % 8));
    buffers_.assign(array.buffers, array.buffers + array.n_buffers);
    buffers_[0] = validity_.data();
    array.buffers = buffers_.data();
    array.null_count = -1;
  }

  std::vector<uint8_t> validity_;
  std::vector<const void*> buffers_;
};

// The stream of one column of a stream of tables, or of one table.
class FieldStream {
 public:
  FieldStream(std::shared_ptr<const Owned<Schema>> schema, int64_t column)
      : schema_(std::move(schema)), column_(column) {}
  Owned<Stream> tables;  // where the tables come from, or
  Owned<Array> table;    // the only one

  static void to_stream(std::unique_ptr<FieldStream> self, Stream* out) {
    *out = {get_schema, get_next, get_last_error, release, self.release()};
  }

 private:
  // What keeps a column alive: the table's schema, or the table.
  struct SchemaOwner {
    std::shared_ptr<const Owned<Schema>> table;
  };
  struct ArrayOwner {
    Owned<Array> table;
    std::unique_ptr<Field> field;
  };
  template <typename Owner, typename T>
  static void hand_out(std::unique_ptr<Owner> owner, const T& column, T* out) {
    *out = column;
    out->release = [](T* released) {
      delete static_cast<Owner*>(released->private_data);
      released->release = nullptr;
    };
    out->private_data = owner.release();
  }

  static FieldStream& of(Stream* stream) { return *static_cast<FieldStream*>(stream->private_data); }

  // f(), which returns 0 or an error number; an exception becomes a text.
  template <typename F>
  int guarded(const F& f) {
    try {
      return f();
    } catch (const std::bad_alloc&) {
      error_ = "not enough memory";
      return ENOMEM;
    } catch (const std::exception& error) {
      error_ = error.what();
      return EINVAL;
    }
  }

  static int get_schema(Stream* stream, Schema* out) {
    FieldStream& self = of(stream);
    return self.guarded([&] {
      hand_out(std::make_unique<SchemaOwner>(SchemaOwner{self.schema_}), field_of(self.schema_->value, self.column_),
               out);
      return 0;
    });
  }

  static int get_next(Stream* stream, Array* out) {
    FieldStream& self = of(stream);
    return self.guarded([&] {
      out->release = nullptr;
      auto owner = std::make_unique<ArrayOwner>();
      if (Stream* tables = &self.tables.value; tables->release != nullptr) {
        if (const int code = tables->get_next(tables, &owner->table.value); code != 0) {
          const char* text = tables->get_last_error(tables);
          self.error_ = text == nullptr ? "no reason given" : text;
          return code;
        }
      } else {
        owner->table.take(&self.table.value);
      }
      if (owner->table.value.release == nullptr) return 0;  // no more
      owner->field = std::make_unique<Field>(owner->table.value, self.column_);
      const Array& column = owner->field->array;
      hand_out(std::move(owner), column, out);
      return 0;
    });
  }

  static const char* get_last_error(Stream* stream) { return of(stream).error_.c_str(); }
  static void release(Stream* stream) {
    delete &of(stream);
    stream->release = nullptr;
  }

  std::shared_ptr<const Owned<Schema>> schema_;
  int64_t column_;
  std::string error_;
};

}  // namespace evenbins::python::arrow
