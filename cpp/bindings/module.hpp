#pragma once

#include "casters.hpp"

namespace evenbins::python {

void bind_sources(nanobind::module_& m);
void bind_filters(nanobind::module_& m);
void bind_fuse(nanobind::module_& m);
void bind_fingerprint(nanobind::module_& m);
void bind_sketches(nanobind::module_& m);
void bind_hyperloglog(nanobind::module_& m);
void bind_tables(nanobind::module_& m);
void bind_chained(nanobind::module_& m);
void bind_rings(nanobind::module_& m);
void bind_routing(nanobind::module_& m);
void bind_summaries(nanobind::module_& m);
void bind_paged(nanobind::module_& m);
void bind_sharding(nanobind::module_& m);
void bind_placement(nanobind::module_& m);
void bind_stages(nanobind::module_& m);
void bind_lines(nanobind::module_& m);
void bind_latency(nanobind::module_& m);
void bind_leftover(nanobind::module_& m);

}  // namespace evenbins::python
