// The extension module `evenbins._study`: the simulators behind the papers' experiments.
//
// It is loaded by evenbins.study alone. It takes headers of the core (hash.hpp, threads.hpp) and links none of its
// objects, so that neither module carries the other's code.
#include "study/bindings/module.hpp"

NB_MODULE(_study, m) {
  using namespace evenbins::study::python;
  m.doc() = "The simulators of evenbins.study. Private: use the package `evenbins.study`.";
  bind_simulate(m);
  bind_simulate_tables(m);
  bind_simulate_summaries(m);
  bind_simulate_rings(m);
  bind_simulate_cache(m);
}
