/* Calls functions of the driver with arguments that no program should give: `driver_fuzz LIBRARY < NAMES` prints each call
 * that ended its process, as `NAME KIND STATUS`, then how many calls there were. Each is made in a process of its own.
 * `driver_fuzz LIBRARY THREADS` lets so many threads do what programs do, on handles of their own and on shared ones. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 20 /* arguments */
#define SIZE 8192

typedef uintptr_t word;
typedef word (*function)(word, word, word, word, word, word, word, word, word, word, word, word, word, word, word, word,
                         word, word, word, word);

static const char *const KINDS[] = {"empty", "null", "ones", "empty+ones", "huge", "device"};
enum { EMPTY, NOTHING, ONES, MIXED, HUGE, DEVICE, ALL };
static unsigned char buffers[MOST][SIZE];

static word argument(int kind, int at) {
  static const word DEVICES[] = {99, (word)-1, 16, 15, 1000};
  switch (kind) {
    case EMPTY: return (word)buffers[at];
    case NOTHING: return 0;
    case ONES: return (word)-1;
    case MIXED: return at % 2 == 0 ? (word)buffers[at] : (word)-1;
    case HUGE: return at == 0 ? (word)buffers[at] : (word)0 - ((word)2 << 20);
    default: return at == 0 ? (word)buffers[at] : DEVICES[at % 5];
  }
}

static void call(function one, int kind) {
  word a[MOST];
  for (int at = 0; at < MOST; at++) {
    a[at] = argument(kind, at);
  }
  one(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17],
      a[18], a[19]);
}

static void *library, *shared[2]; /* a stream, an event */
#define CALL(name, ...) ((int (*)())dlsym(library, #name))(__VA_ARGS__)

static void *work(void *rounds) {
  for (int round = 0; round < (int)(intptr_t)rounds; round++) {
    uint64_t address[4], reserved;
    void *stream, *event, *graph, *piece, *module, *kernel;
    int property[16] = {1, 1, 1, 0}, status;
    size_t left, total;
    int64_t value = round;
    CALL(cudaSetDevice, round % 2);
    for (int at = 0; at < 4; at++) {
      CALL(cudaMalloc, &address[at], (size_t)1 << (16 + at));
    }
    CALL(cuMemcpyHtoD_v2, address[0], &value, sizeof value);
    CALL(cuMemcpyDtoH_v2, &value, address[0], sizeof value);
    CALL(cuMemsetD8_v2, address[1], 1, (size_t)4096);
    CALL(cuMemcpyDtoD_v2, address[2], address[1], (size_t)4096);
    CALL(cudaStreamCreate, &stream);
    CALL(cudaEventCreate, &event);
    CALL(cuEventRecord, event, stream);
    CALL(cuEventRecord, shared[1], shared[0]);
    CALL(cuStreamWaitEvent, stream, shared[1], 0);
    CALL(cuModuleLoadData, &module, "");
    CALL(cuModuleGetFunction, &kernel, module, "kernel");
    CALL(cuStreamBeginCapture_v2, stream, 0);
    CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuGraphDestroy, graph);
    CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, shared[0], NULL, NULL);
    CALL(cuStreamIsCapturing, shared[0], &status);
    CALL(cudaEventDestroy, event);
    CALL(cudaStreamDestroy, stream);
    CALL(cudaMemGetInfo, &left, &total);
    if (CALL(cuMemCreate, &piece, (size_t)2 << 20, property, (uint64_t)0) == 0) {
      CALL(cuMemAddressReserve, &reserved, (size_t)4 << 20, (size_t)0, (uint64_t)0, (uint64_t)0);
      CALL(cuMemMap, reserved, (size_t)2 << 20, (size_t)0, piece, (uint64_t)0);
      CALL(cuMemRelease, piece);
      CALL(cuMemUnmap, reserved, (size_t)2 << 20);
      CALL(cuMemAddressFree, reserved, (size_t)4 << 20);
    }
    for (int at = 0; at < 4; at++) {
      CALL(cudaFree, address[at]);
    }
  }
  return NULL;
}

static int work_in_threads(int count) {
  pthread_t threads[64];
  CALL(cudaSetDevice, 0);
  CALL(cudaStreamCreate, &shared[0]);
  CALL(cudaEventCreate, &shared[1]);
  for (int at = 0; at < count && at < 64; at++) {
    pthread_create(&threads[at], NULL, work, (void *)200);
  }
  for (int at = 0; at < count && at < 64; at++) {
    pthread_join(threads[at], NULL);
  }
  return 0;
}

int main(int count, char **words) {
  library = count > 1 ? dlopen(words[1], RTLD_NOW) : NULL;
  int (*begin)(int) = library == NULL ? NULL : (int (*)(int))dlsym(library, "cudaSetDevice");
  if (begin == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  if (count > 2) {
    return work_in_threads(atoi(words[2]));
  }
  char name[256];
  int calls = 0;
  bool is_verbose = getenv("VERBOSE") != NULL;
  while (scanf("%255s", name) == 1) {
    function one = (function)dlsym(library, name);
    for (int kind = 0; one != NULL && kind < ALL; kind++, calls++) {
      fflush(stdout);
      pid_t child = fork();
      if (child == 0) {
        if (!is_verbose && freopen("/dev/null", "w", stderr) == NULL) {
          _exit(9);
        }
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        alarm(20);
        if (begin(0) != 0) { /* not in the parent, whose children could not */
          _exit(8);
        }
        call(one, kind);
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0) {
        printf("%s %s %s %d\n", name, KINDS[kind], WIFSIGNALED(status) ? "signal" : "code",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      }
    }
  }
  printf("%d calls\n", calls);
  return 0;
}
