// Rings without memory: each operation with its n-th allocation failing, n = 0, 1, 2, …, until it succeeds. After each
// failure all invariants must hold and the ring must work; remove_node must have changed nothing.
//
// Built and run by tests/unit/test_ring_allocations.py. operator new and mmap (-Wl,--wrap=mmap) are replaced.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>

#include "../cpp/rings/ring.cpp"  // one translation unit: half the time to build
#include "../cpp/rings/ring_image.cpp"
#include "../cpp/xxh3.cpp"

static long left = -1;
static bool fails() { return left >= 0 && left-- == 0; }
void* operator new(size_t n) {
  if (fails()) throw std::bad_alloc();
  void* p = malloc(n ? n : 1);
  if (!p) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
extern "C" void* __real_mmap(void*, size_t, int, int, int, off_t);
extern "C" void* __wrap_mmap(void* a, size_t n, int p, int f, int d, off_t o) {
  if (fails()) return MAP_FAILED;
  return __real_mmap(a, n, p, f, d, o);
}
using namespace evenbins;
static Ring make(RingPolicy policy, RingLayout layout, bool caps, uint64_t keys) {
  RingConfig c;
  c.policy = policy;
  c.layout = layout;
  if (layout == RingLayout::sparse) c.array_bits = 12;
  if (policy != RingPolicy::plain) {
    if (caps)
      c.limit = 100;
    else {
      c.rate = 1100000000;
      c.epsilon = 0.1;
    }
  }
  Ring r(c);
  std::vector<Ring::NewNode> v;
  for (int i = 0; i < 6; ++i)
    v.push_back({"node-with-a-long-name-" + std::to_string(i), i == 3 ? 2.5 : 1.0,
                 i == 3 ? Ring::kWhole * 5 / 2 : Ring::kWhole, caps && policy != RingPolicy::plain ? 100u : 0u});
  r.add_nodes(v);
  for (uint64_t i = 0; i < keys; ++i) r.assign(splitmix(1, i));
  RingMoves m;
  r.mark_down(r.order()[1], m);
  r.remove_node(r.order()[4], m);
  return r;
}
int main() {
  long total = 0, bad = 0;
  for (auto policy :
       {RingPolicy::plain, RingPolicy::clockwise, RingPolicy::rehash, RingPolicy::rehash_bin, RingPolicy::jump})
    for (auto layout : {RingLayout::dense, RingLayout::sparse})
      for (bool caps : {false, true}) {
        const uint32_t cap = caps && policy != RingPolicy::plain ? 100 : 0;
        std::vector<std::pair<const char*, std::function<void(Ring&)>>> ops{
            {"assign",
             [](Ring& r) {
               for (int i = 0; i < 60; ++i) r.assign(splitmix(2, i));
             }},
            {"add",
             [=](Ring& r) {
               RingMoves m;
               r.add_node({"another-node-with-a-name", 3.0, 3 * Ring::kWhole, cap}, false, m);
             }},
            {"lazy",
             [=](Ring& r) {
               RingMoves m;
               r.add_node({"another-node-with-a-name", 3.0, 3 * Ring::kWhole, cap}, true, m);
               for (int i = 0; i < 100; ++i) r.assign(splitmix(1, i));
             }},
            {"remove",
             [](Ring& r) {
               RingMoves m;
               r.remove_node(r.order()[0], m);
             }},
            {"removedown",
             [](Ring& r) {
               RingMoves m;
               r.remove_node(r.order()[1], m);
             }},
            {"down",
             [](Ring& r) {
               RingMoves m;
               r.mark_down(r.order()[2], m);
             }},
            {"up",
             [](Ring& r) {
               RingMoves m;
               r.mark_up(r.order()[1], m);
             }},
            {"drain", [](Ring& r) { r.drain(r.order()[2]); }},
            {"heavier",
             [=](Ring& r) {
               RingMoves m;
               r.set_weight(r.order()[0], 7, 7 * Ring::kWhole, cap, m);
             }},
            {"lighter",
             [=](Ring& r) {
               RingMoves m;
               r.set_weight(r.order()[3], 1e-7, 1, cap, m);
             }},
            {"rebalance",
             [](Ring& r) {
               RingMoves m;
               r.rebalance(1000, m);
             }},
            {"compact",
             [](Ring& r) {
               RingMoves m;
               r.compact(m);
             }},
            {"lease",
             [](Ring& r) {
               for (int i = 0; i < 20; ++i) r.lease(splitmix(3, i), nullptr, 0);
             }},
            {"release",
             [](Ring& r) {
               for (int i = 0; i < 100; ++i) r.release(splitmix(1, i));
             }},
            {"image",
             [](Ring& r) {
               const auto i = r.image();
               Ring other(i.spec(), i.bits());
             }},
        };
        for (auto& [name, op] : ops)
          for (long n = 0;; ++n) {
            Ring r = make(policy, layout, caps, 200);
            const auto keys = r.size();
            const auto print = r.fingerprint();
            auto before = r.image();
            bool failed = false;
            left = n;
            try {
              op(r);
            } catch (const std::bad_alloc&) {
              failed = true;
            } catch (const RingFull&) {
            } catch (const NoNodes&) {
            }
            left = -1;
            ++total;
            std::string broken = r.check(true);
            if (std::string(name).rfind("remove", 0) == 0 && failed) {
              auto after = r.image();
              if (!(before.bits() == after.bits()) || r.fingerprint() != print) broken = "remove_node is not undone";
            }
            if (std::string(name) != "assign" && std::string(name) != "release" && r.size() != keys)
              broken = "keys changed";
            if (broken.empty()) {
              try {
                for (int i = 0; i < 50; ++i) r.assign(splitmix(9, i));
                RingMoves m;
                r.compact(m);
                r.rebalance(~0ull, m);
                r.mark_up(r.order()[0], m);
                broken = r.check(true);
              } catch (const RingFull&) {
              }
            }
            if (!broken.empty()) {
              ++bad;
              printf("%d %d %d %s n=%ld: %s\n", int(policy), int(layout), caps, name, n, broken.c_str());
            }
            if (!failed) break;
          }
      }
  printf("%ld runs, %ld broken\n", total, bad);
  return bad != 0;
}
