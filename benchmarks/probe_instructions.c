/* Marks turns of a job that callgrind counts: its instrumentation begins once, for what it has translated it forgets at
   each end. */
#include <valgrind/callgrind.h>

void count_begin(void) { CALLGRIND_START_INSTRUMENTATION; }
void turn_begins(void) { CALLGRIND_ZERO_STATS; }
void turn_ends(void) { CALLGRIND_DUMP_STATS; }
