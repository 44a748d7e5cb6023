// What is behind a Python filter that consists of filters: _core.Stages (stages.cpp) and _core.Shards (sharding.cpp), the
// bases of GrowingFilter and ShardedFilter.
//
// The Python objects of the parts lie in a tuple, which is replaced as a whole. What lies behind them is at hand, so that
// a single key costs its digest and the parts that it concerns. No Python code runs between the two, so the parts that a
// call has found stay those of the tuple while it holds the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "evenbins/parallel.hpp"
#include "evenbins/stretches.hpp"
#include "filter_object.hpp"
#include "keys.hpp"
#include "recent.hpp"
#include "structure.hpp"

namespace evenbins::python {

inline FilterObject& filter_behind(nb::handle part) { return nb::cast<FilterObject&>(part); }

struct CompositeObject {
  explicit CompositeObject(uint64_t seed) : hasher(seed) {}

  void set_parts(nb::tuple all) {
    std::vector<FilterObject*> found;
    found.reserve(all.size());
    for (nb::handle part : all) found.push_back(&filter_behind(part));
    filters.swap(found);
    std::swap(parts, all);  // the old tuple dies when both are in place
  }

  Hasher hasher;
  nb::tuple parts;
  std::vector<FilterObject*> filters;  // behind `parts`
};

// Slots of the garbage collector: a part of a user's class may refer to the filter that it is a part of.
template <typename Object>
int traverse_parts(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Object>(self)->parts.ptr());
  return 0;
}
template <typename Object>
int clear_parts(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Object>(self)->set_parts(nb::tuple());
  return 0;
}

// A single call by way of C++ code that may throw: null with a Python exception set if it does.
template <typename F>
PyObject* with_python_errors(F&& call) {
  try {
    return call();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// A signal handler of a thread that is changing a part: a change would wait for itself.
inline void refuse_reentry(const FilterObject& part) {
  if ((part.busy && part.writer == std::this_thread::get_id()) || Reading::under_way(part) != 0)
    throw std::runtime_error("this structure is in the middle of a bulk call of the same thread");
}

// Merges filters into the ones at the same places: all of them, or none. The constructor does what may fail, and changes
// nothing; `run` must follow with no Python code in between, and does not fail.
class MergeOfParts {
 public:
  MergeOfParts(std::vector<FilterObject*> mine, std::vector<FilterObject*> theirs)
      : mine_(std::move(mine)), theirs_(std::move(theirs)) {
    spaces_.reserve(mine_.size());
    for (size_t i = 0; i < mine_.size(); ++i) {
      require_writable(*mine_[i]);
      refuse_reentry(*mine_[i]);
      refuse_reentry(*theirs_[i]);
      spaces_.push_back(mine_[i]->filter->merge_space(*theirs_[i]->filter));
    }
  }
  void run() {
    for (size_t i = 0; i < mine_.size(); ++i) {
      FilterObject &mine = *mine_[i], &theirs = *theirs_[i];
      const auto merge = [&] {
        wait_for_readers(mine);
        mine.filter->merge_in(*theirs.filter, spaces_[i]);
      };
      if (&mine != &theirs) {
        with_both(mine, theirs, merge);
      } else if (mine.filter->is_multiset()) {  // to any other filter its own keys are nothing new
        const Access alone(mine);
        merge();
      }
    }
  }

 private:
  std::vector<FilterObject*> mine_, theirs_;
  std::vector<std::vector<uint64_t>> spaces_;
};

}  // namespace evenbins::python
