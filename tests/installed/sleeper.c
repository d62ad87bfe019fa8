/* A process to be looked at: it does nothing, under whatever arguments it is given, and ends with its parent. */
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
}
