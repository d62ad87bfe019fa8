/* NCCL for cards that are not there: a collective returns at once. What the host copied to a card and then sends (sizes,
 * flags, pickled objects, counts) does arrive, through files beside the reports: each rank appends what it sends to a
 * log of its own, and who reads a buffer that was received waits for the record. Anything that kernels computed is sent
 * as "not known", and reads as zeros like all that they compute. */
#include "driver.h"

enum { NCCL_SUCCESS, NCCL_CUDA_ERROR, NCCL_SYSTEM_ERROR, NCCL_INVALID_ARGUMENT = 4, NCCL_INVALID_USAGE };
enum { SUM, PRODUCT, MAX, MIN, AVERAGE };
#define EVERYBODY (-1)
#define LONGEST_WAIT 60 /* seconds for a rank that sends nothing: it has ended, or waits for this one */
#define MOST_EXPECTED 1024

struct id {
  char bytes[128];
};

struct comm {
  char name[17]; /* of its logs */
  int rank, count, log;
  CUdevice device;
  uint64_t calls, *sent, *received; /* collectives; messages by peer */
};

struct record {
  int32_t to;
  uint32_t size;
  uint64_t number;
  uint64_t is_known;
};

/* What a buffer will hold: `size` bytes of a record, or a sum of everybody's. */
struct expected {
  CUdeviceptr address;
  size_t size;
  struct comm *comm;
  int from, to; /* `from` EVERYBODY: reduced */
  uint64_t number;
  int type, operation;
};

static struct expected expected[MOST_EXPECTED];
static int newest, awaited;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; /* of ncclDataType_t */

static int open_log(const struct comm *comm, int rank, int flags) {
  return open_beside(flags, "nccl-%s-%d", comm->name, rank);
}

void lock_nccl(void) { pthread_mutex_lock(&lock); }
void unlock_nccl(void) { pthread_mutex_unlock(&lock); }
void forget_nccl(void) { pthread_mutex_init(&lock, NULL); }

static void send_record(struct comm *comm, int to, uint64_t number, const void *bytes, size_t size, bool is_known) {
  comm->log = comm->log < 0 ? open_log(comm, comm->rank, O_WRONLY | O_CREAT | O_APPEND) : comm->log;
  size_t length = is_known ? size : 0;
  struct record *record = malloc(sizeof *record + length);
  if (record != NULL && comm->log >= 0) {
    *record = (struct record){.to = to, .size = (uint32_t)length, .number = number, .is_known = is_known};
    memcpy(record + 1, bytes, length);
    ssize_t written UNUSED = write(comm->log, record, sizeof *record + length);
  }
  free(record);
}

/* Waits for a record and reads it; false where it is not known, or never came. */
static bool receive(const struct expected *what, int from, size_t size, void *bytes) {
  time_t last = getenv("VRAMTUI_DRIVER_REPORT") == NULL ? 0 : time(NULL) + LONGEST_WAIT;
  off_t at = 0;
  int log = -1;
  for (unsigned pause = 200; time(NULL) < last; pause = pause < 20000 ? 2 * pause : pause) {
    log = log < 0 ? open_log(what->comm, from, O_RDONLY) : log;
    struct record record;
    struct stat state;
    while (log >= 0 && pread(log, &record, sizeof record, at) == (ssize_t)sizeof record) {
      off_t behind = at + (off_t)sizeof record + (off_t)record.size;
      if (fstat(log, &state) != 0 || state.st_size < behind) {
        break; /* its end is still being written */
      }
      if (record.to == what->to && record.number == what->number) {
        off_t start = at + (off_t)sizeof record;
        bool is_known = record.is_known && size <= record.size && pread(log, bytes, size, start) == (ssize_t)size;
        close(log);
        return is_known;
      }
      at = behind;
    }
    usleep(pause);
  }
  close(log);
  return false;
}

#define COMBINE(type)                                                       \
  for (size_t at = 0; at < size / sizeof(type); at++) {                     \
    type *one = (type *)sum + at, next = ((const type *)other)[at];         \
    *one = operation == PRODUCT ? (type)(*one * next)                       \
           : operation == MAX   ? (*one > next ? *one : next)               \
           : operation == MIN   ? (*one < next ? *one : next)               \
                                : (type)(*one + next);                      \
  }                                                                         \
  return true

static bool combine(int type, int operation, void *sum, const void *other, size_t size) {
  switch (type) {
    case 0: COMBINE(int8_t);
    case 1: COMBINE(uint8_t);
    case 2: COMBINE(int32_t);
    case 3: COMBINE(uint32_t);
    case 4: COMBINE(int64_t);
    case 5: COMBINE(uint64_t);
    case 7: COMBINE(float);
    case 8: COMBINE(double);
    default: return false; /* halves: what is reduced in them was computed */
  }
}

/* What everybody sent, reduced. */
static bool reduce(const struct expected *what, char *sum) {
  char *other = malloc(what->size);
  bool is_known = other != NULL && what->operation <= AVERAGE;
  for (int rank = 0; is_known && rank < what->comm->count; rank++) {
    is_known = receive(what, rank, what->size, rank == 0 ? sum : other) &&
               (rank == 0 || combine(what->type, what->operation, sum, other, what->size));
  }
  for (size_t at = 0; is_known && what->operation == AVERAGE && at < what->size / SIZES[what->type]; at++) {
    switch (what->type) {
      case 2: ((int32_t *)sum)[at] /= what->comm->count; break;
      case 4: ((int64_t *)sum)[at] /= what->comm->count; break;
      case 7: ((float *)sum)[at] /= (float)what->comm->count; break;
      case 8: ((double *)sum)[at] /= what->comm->count; break;
      default: is_known = false;
    }
  }
  free(other);
  return is_known;
}

/* One that is expected within these bytes, taken off the list. */
static bool take_expected(CUdeviceptr address, size_t size, struct expected *what) {
  bool is_there = false;
  pthread_mutex_lock(&lock);
  for (int at = 0; awaited > 0 && at < MOST_EXPECTED && !is_there; at++) {
    struct expected *one = &expected[at];
    is_there = one->size > 0 && one->address < address + size && address < one->address + one->size;
    if (is_there) {
      *what = *one;
      one->size = 0;
      awaited--;
    }
  }
  pthread_mutex_unlock(&lock);
  return is_there;
}

/* Something else is written there: what was expected is not any more. */
void expect_nothing(CUdeviceptr address, size_t size) {
  struct expected what;
  while (awaited > 0 && take_expected(address, size, &what)) {
  }
}

static void expect(struct expected what) {
  expect_nothing(what.address, what.size);
  pthread_mutex_lock(&lock);
  awaited += expected[newest].size == 0;
  expected[newest] = what;
  newest = (newest + 1) % MOST_EXPECTED;
  pthread_mutex_unlock(&lock);
}

/* Before bytes of a card are read: what ranks sent there is there, or is not known. */
void settle(CUdeviceptr address, size_t size) {
  struct expected what;
  while (awaited > 0 && take_expected(address, size, &what)) {
    char *bytes = malloc(what.size);
    if (bytes != NULL) {
      if (what.from == EVERYBODY ? reduce(&what, bytes) : receive(&what, what.from, what.size, bytes)) {
        copy(what.address, (CUdeviceptr)bytes, what.size);
      } else {
        fill(what.address, 0, 1, what.size);
      }
    }
    free(bytes);
  }
}

/* What is longer was computed, or is weights, but bytes may be a pickled object of any length. */
static bool is_followed(size_t size, int type) { return size <= LONGEST_COPY || (type <= 1 && size >> 31 == 0); }

static void send_from(struct comm *comm, int to, uint64_t number, CUdeviceptr address, size_t size, int type) {
  if (is_followed(size, type)) {
    settle(address, size);
    bool is_known = knows(address, size) && (size <= LONGEST_COPY || is_pickled(address));
    send_record(comm, to, number, (const void *)address, size, is_known);
  }
}

static void expect_from(struct comm *comm, int from, int to, uint64_t number, CUdeviceptr address, size_t size,
                        int type) {
  if (is_followed(size, type) && size > 0) {
    expect((struct expected){.address = address, .size = size, .comm = comm, .from = from, .to = to, .number = number});
  }
}

static int begin(struct comm **made, const char *name, int rank, int count) {
  RETURN_IF(is_wrong(made) || rank < 0 || rank >= count || count > 1 << 20, NCCL_INVALID_ARGUMENT);
  RETURN_IF(runtime_context() == NULL, NCCL_CUDA_ERROR);
  struct comm *comm = make_handle(COMMS, sizeof *comm);
  RETURN_IF(comm == NULL, NCCL_SYSTEM_ERROR);
  *comm = (struct comm){.rank = rank, .count = count, .log = -1, .device = runtime_context()->device};
  snprintf(comm->name, sizeof comm->name, "%s", name);
  comm->sent = calloc((size_t)count, sizeof *comm->sent);
  comm->received = calloc((size_t)count, sizeof *comm->received);
  static bool has_buffers[MOST_DEVICES];
  bool is_first = count > 1 && !has_buffers[comm->device];
  has_buffers[comm->device] |= is_first;
  load(runtime_context(), KERNELS);
  RETURN_IF(!charge(comm->device, is_first ? the_card()->communicator : the_card()->further), NCCL_CUDA_ERROR);
  *made = comm;
  return NCCL_SUCCESS;
}
API int ncclGetUniqueId(struct id *id) {
  RETURN_IF(is_wrong(id), NCCL_INVALID_ARGUMENT);
  int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  bool is_done = random >= 0 && read(random, id, sizeof *id) == (ssize_t)sizeof *id;
  close(random);
  return is_done ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}
API int ncclCommInitRank(struct comm **comm, int count, struct id id, int rank) {
  uint64_t number;
  char name[17];
  memcpy(&number, id.bytes, sizeof number);
  snprintf(name, sizeof name, "%016llx", (unsigned long long)number);
  return begin(comm, name, rank, count);
}
ALSO(ncclCommInitRankConfig, ncclCommInitRank) /* whose configuration changes nothing */
API int ncclCommInitRankScalable(struct comm **comm, int count, int rank, int ids UNUSED, const struct id *first,
                                 void *config UNUSED) {
  RETURN_IF(is_wrong(first), NCCL_INVALID_ARGUMENT);
  return ncclCommInitRank(comm, count, *first, rank);
}
API int ncclCommInitAll(struct comm **comms, int count, const int *devices) {
  RETURN_IF(is_wrong(comms) || count < 1 || count > MOST_DEVICES || (devices != NULL && is_wrong(devices)), NCCL_INVALID_ARGUMENT);
  struct id id;
  int result = ncclGetUniqueId(&id);
  for (int rank = 0; rank < count && result == NCCL_SUCCESS; rank++) {
    cudaSetDevice(devices == NULL ? rank : devices[rank]);
    result = ncclCommInitRank(&comms[rank], count, id, rank);
  }
  return result;
}

/* Ranks of one colour, in the order of their keys. */
API int ncclCommSplit(struct comm *comm, int color, int key, struct comm **made, void *config UNUSED) {
  RETURN_IF(!is_handle(COMMS, comm) || is_wrong(made), NCCL_INVALID_ARGUMENT);
  int own[2] = {color, key}, other[2], rank = 0, count = 0;
  uint64_t number = comm->calls++;
  send_record(comm, EVERYBODY, number, own, sizeof own, true);
  for (int peer = 0; peer < comm->count; peer++) {
    struct expected what = {.comm = comm, .to = EVERYBODY, .number = number};
    RETURN_IF(!receive(&what, peer, sizeof other, other), NCCL_SYSTEM_ERROR);
    count += other[0] == color;
    rank += other[0] == color && (other[1] < key || (other[1] == key && peer < comm->rank));
  }
  *made = NULL;
  RETURN_IF(color < 0, NCCL_SUCCESS);
  char name[17];
  uint64_t parent = strtoull(comm->name, NULL, 16);
  uint64_t mixed = (parent ^ (number + 1) * 0x9e3779b97f4a7c15u) + (uint64_t)color * 0xff51afd7ed558ccdu;
  snprintf(name, sizeof name, "%016llx", (unsigned long long)mixed);
  return begin(made, name, rank, count);
}
API int ncclGetVersion(int *version) {
  RETURN_IF(is_wrong(version), NCCL_INVALID_ARGUMENT);
  int (*own)(int *) = (int (*)(int *))dlsym(RTLD_NEXT, "ncclGetVersion");
  *version = 22900;
  return own == NULL ? NCCL_SUCCESS : own(version);
}
API const char *ncclGetErrorString(int code) {
  return code == NCCL_SUCCESS ? "no error" : code == NCCL_INVALID_USAGE ? "not modelled on an emulated card" : "failed";
}
API const char *ncclGetLastError(struct comm *comm UNUSED) { return ""; }
#define OF_COMM(name, parameters, where, answer) \
  ANSWER_OF(is_handle(COMMS, comm) && !is_wrong(where), NCCL_INVALID_ARGUMENT, name, parameters, where, answer)
OF_COMM(ncclCommGetAsyncError, (const struct comm *comm, int *error), error, NCCL_SUCCESS)
OF_COMM(ncclCommCount, (const struct comm *comm, int *count), count, comm->count)
OF_COMM(ncclCommUserRank, (const struct comm *comm, int *rank), rank, comm->rank)
OF_COMM(ncclCommCuDevice, (const struct comm *comm, int *device), device, comm->device)
OF_COMM(ncclCommMemStats, (const struct comm *comm, int what UNUSED, uint64_t *value), value, 0)
API int ncclMemAlloc(CUdeviceptr *address, size_t size) { return cuMemAlloc_v2(address, size) != CUDA_SUCCESS; }
API int ncclMemFree(CUdeviceptr address) { return cuMemFree_v2(address) != CUDA_SUCCESS; }

/* What a collective is given: a communicator, a type, and so many numbers for each of `ranks` where they are. */
static bool is_refused(const struct comm *comm, CUdeviceptr from, CUdeviceptr to, size_t count, int type, int ranks) {
  RETURN_IF(!is_handle(COMMS, comm) || type < 0 || type > 11 || count >> 40 != 0, true);
  size_t size = count * SIZES[type];
  return size > 0 && (!is_reachable(from, size) || !is_reachable(to, size * (size_t)ranks));
}
API int ncclBroadcast(CUdeviceptr from, CUdeviceptr to, size_t count, int type, int root, struct comm *comm,
                      struct stream *stream) {
  RETURN_IF(is_refused(comm, to, to, count, type, 1) || root < 0 || root >= comm->count, NCCL_INVALID_ARGUMENT);
  uint64_t number = comm->calls++;
  size_t size = count * SIZES[type];
  add_graph_node(stream, 0);
  if (comm->rank == root) {
    send_from(comm, EVERYBODY, number, from, size, type);
    return from == to ? NCCL_SUCCESS : copy(to, from, size);
  }
  expect_from(comm, root, EVERYBODY, number, to, size, type);
  return NCCL_SUCCESS;
}
API int ncclBcast(CUdeviceptr buffer, size_t count, int type, int root, struct comm *comm, struct stream *stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
API int ncclAllGather(CUdeviceptr from, CUdeviceptr to, size_t count, int type, struct comm *comm,
                      struct stream *stream) {
  RETURN_IF(is_refused(comm, from, to, count, type, 1), NCCL_INVALID_ARGUMENT);
  uint64_t number = comm->calls++;
  size_t size = count * SIZES[type];
  add_graph_node(stream, 0);
  send_from(comm, EVERYBODY, number, from, size, type);
  for (int rank = 0; rank < comm->count; rank++) {
    expect_from(comm, rank, EVERYBODY, number, to + (size_t)rank * size, size, type);
  }
  return NCCL_SUCCESS;
}
API int ncclReduce(CUdeviceptr from, CUdeviceptr to, size_t count, int type, int operation, int root,
                   struct comm *comm, struct stream *stream) {
  RETURN_IF(is_refused(comm, from, from, count, type, 1) || root < EVERYBODY || root >= comm->count, NCCL_INVALID_ARGUMENT);
  uint64_t number = comm->calls++;
  size_t size = count * SIZES[type];
  add_graph_node(stream, 0);
  send_from(comm, EVERYBODY, number, from, size, type);
  if ((root == EVERYBODY || root == comm->rank) && size <= LONGEST_COPY && size > 0) {
    expect((struct expected){.address = to, .size = size, .comm = comm, .from = EVERYBODY, .to = EVERYBODY,
                             .number = number, .type = type, .operation = operation});
  }
  return NCCL_SUCCESS;
}
API int ncclAllReduce(CUdeviceptr from, CUdeviceptr to, size_t count, int type, int operation, struct comm *comm,
                      struct stream *stream) {
  return ncclReduce(from, to, count, type, operation, EVERYBODY, comm, stream);
}
API int ncclSend(CUdeviceptr from, size_t count, int type, int peer, struct comm *comm, struct stream *stream) {
  RETURN_IF(is_refused(comm, from, from, count, type, 1) || peer < 0 || peer >= comm->count, NCCL_INVALID_ARGUMENT);
  add_graph_node(stream, 0);
  send_from(comm, peer, comm->sent[peer]++, from, count * SIZES[type], type);
  return NCCL_SUCCESS;
}
API int ncclRecv(CUdeviceptr to, size_t count, int type, int peer, struct comm *comm, struct stream *stream) {
  RETURN_IF(is_refused(comm, to, to, count, type, 1) || peer < 0 || peer >= comm->count, NCCL_INVALID_ARGUMENT);
  add_graph_node(stream, 0);
  expect_from(comm, peer, comm->rank, comm->received[peer]++, to, count * SIZES[type], type);
  return NCCL_SUCCESS;
}
API int ncclAlltoAll(CUdeviceptr from, CUdeviceptr to, size_t count, int type, struct comm *comm,
                     struct stream *stream) {
  RETURN_IF(is_refused(comm, from, to, count, type, 1), NCCL_INVALID_ARGUMENT);
  for (int peer = 0; peer < comm->count; peer++) {
    ncclSend(from + (size_t)peer * count * SIZES[type], count, type, peer, comm, stream);
    ncclRecv(to + (size_t)peer * count * SIZES[type], count, type, peer, comm, stream);
  }
  return NCCL_SUCCESS;
}
API int ncclReduceScatter(CUdeviceptr from UNUSED, CUdeviceptr to UNUSED, size_t count UNUSED, int type UNUSED,
                          int operation UNUSED, struct comm *comm UNUSED, struct stream *stream) {
  add_graph_node(stream, 0);
  return NCCL_SUCCESS;
}

/* Nothing to do: buffers are no more than addresses, and ranks that have ended have left their logs. */
NOTHING(ncclGroupStart) NOTHING(ncclGroupEnd) NOTHING(ncclCommFinalize) NOTHING(ncclCommDestroy) NOTHING(ncclCommAbort)
NOTHING(ncclCommSuspend) NOTHING(ncclCommResume) NOTHING(ncclCommDeregister) NOTHING(ncclRedOpDestroy)
NOTHING(ncclCommWindowDeregister)
ANSWER_OF(!is_wrong(handle), NCCL_INVALID_ARGUMENT, ncclCommRegister,
          (struct comm *comm UNUSED, void *buffer, size_t size UNUSED, void **handle), handle, buffer)
ALSO(ncclCommWindowRegister, ncclCommRegister)
ANSWER_OF(!is_wrong(operation), NCCL_INVALID_ARGUMENT, ncclRedOpCreatePreMulSum, (int *operation), operation, AVERAGE + 1)

#define NO(name) REFUSED(name, NCCL_INVALID_USAGE)
NO(ncclCommShrink) NO(ncclGroupSimulateEnd) NO(ncclDevCommCreate) NO(ncclDevCommDestroy)
NO(ncclGetLsaMultimemDevicePointer) NO(ncclGetPeerDevicePointer) NO(ncclPutSignal) NO(ncclSignal) NO(ncclWaitSignal)
