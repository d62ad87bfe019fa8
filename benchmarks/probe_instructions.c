/* Marks the turns of a job that callgrind counts. It begins once: at each end it forgets what it has translated. */
#include <valgrind/callgrind.h>

void count_begin(void) { CALLGRIND_START_INSTRUMENTATION; }
void turn_begins(void) { CALLGRIND_ZERO_STATS; }
void turn_ends(void) { CALLGRIND_DUMP_STATS; }
