// One fault of each sort, on demand: proof that the sanitizers of this build do report.
//
//     faults overflow | freed | undefined | leak | race
//
// tools/sanitize.py compiles it with the options of each build and expects a report of every fault that the build
// looks for, and none from `faults nothing`.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

uint64_t* volatile kept;  // the compiler cannot tell what is behind it
volatile int seen;        // nor that nobody looks at this

int overflow() {
  kept = new uint64_t[8]();
  const int found = static_cast<int>(kept[8]);
  delete[] kept;
  return found;
}

int freed() {
  kept = new uint64_t(1);
  uint64_t* volatile gone = kept;
  delete kept;
  return static_cast<int>(*gone);
}

int undefined(int large) { return large + large; }

int leak() {
  kept = new uint64_t[100]();
  kept = nullptr;
  std::vector<char> sweep(4096);  // what was left on the stack
  std::memset(sweep.data(), 1, sweep.size());
  return 0;
}

int race() {
  uint64_t shared = 0;
  std::thread other([&] {
    for (int i = 0; i < 100'000; ++i) shared = shared + 1;
  });
  for (int i = 0; i < 100'000; ++i) shared = shared + 1;
  other.join();
  return static_cast<int>(shared & 1);
}

}  // namespace

int main(int count, char** words) {
  const char* fault = count > 1 ? words[1] : "nothing";
  if (std::strcmp(fault, "overflow") == 0) seen = overflow();
  if (std::strcmp(fault, "freed") == 0) seen = freed();
  if (std::strcmp(fault, "undefined") == 0) seen = undefined(INT32_MAX - count);
  if (std::strcmp(fault, "leak") == 0) return leak();
  if (std::strcmp(fault, "race") == 0) seen = race();
  std::puts("no fault");
}
