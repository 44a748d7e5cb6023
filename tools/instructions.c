/* Lets a Python program say to callgrind what to count: tools/instructions.py compiles and loads it. */
#include <valgrind/callgrind.h>

void begin(void) { CALLGRIND_START_INSTRUMENTATION; }

/* Writes what was counted since the last mark, under this name. */
void mark(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
