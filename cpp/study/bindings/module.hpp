#pragma once

#include "bindings/casters.hpp"

namespace evenbins::study::python {

namespace nb = nanobind;

void bind_simulate(nb::module_& m);
void bind_simulate_tables(nb::module_& m);
void bind_simulate_summaries(nb::module_& m);
void bind_simulate_rings(nb::module_& m);
void bind_simulate_cache(nb::module_& m);

}  // namespace evenbins::study::python
