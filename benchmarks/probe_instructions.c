/* Begins and ends the counting of instructions, from a program that valgrind runs. */
#include <valgrind/callgrind.h>

void count_begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void count_end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
