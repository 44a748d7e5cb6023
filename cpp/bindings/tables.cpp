// The Python class `_core.Table`: the base of evenbins.MultilevelTable (src/evenbins/tables.py).
#include <nanobind/nanobind.h>

#include "module.hpp"
#include "table_keys.hpp"

namespace evenbins::python {

void bind_tables(nb::module_& m) { bind_table_keys(m); }

}  // namespace evenbins::python
