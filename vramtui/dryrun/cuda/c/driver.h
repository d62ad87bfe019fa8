/* What the files of this driver share. The numbers and layouts are those that CUDA's driver API documents; the
 * declarations are our own. */
#pragma once

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))
#define MIB ((size_t)1 << 20)
#define CHUNK (2 * MIB) /* the granularity in which a card's memory is handed out */
#define MOST_DEVICES 16

#define RETURN_IF(condition, result) do { if (condition) return result; } while (0)

/* A function of one sentence: what it is asked stands where it is told to put it. */
#define ANSWER(name, parameters, where, answer) ANSWER_OF(true, 0, name, parameters, where, answer)
/* The same of a handle. */
#define ANSWER_OF(is_right, error, name, parameters, where, answer) \
  API int name parameters {                                         \
    RETURN_IF(!(is_right), error);                                  \
    RETURN_IF(is_wrong(where), CUDA_ERROR_INVALID_VALUE);           \
    *(where) = answer;                                              \
    return 0;                                                       \
  }
/* The same with two answers. */
#define ANSWER_TWO(is_right, error, name, parameters, where, answer, also, further) \
  API int name parameters {                                                         \
    RETURN_IF(!(is_right), error);                                                  \
    RETURN_IF(is_wrong(where) || is_wrong(also), CUDA_ERROR_INVALID_VALUE);         \
    *(where) = answer;                                                              \
    *(also) = further;                                                              \
    return 0;                                                                       \
  }
/* Something of the driver's that begins empty, and its end. */
#define MADE(create, parameters, made, kind)                         \
  API CUresult create parameters {                                   \
    RETURN_IF(is_wrong(made), CUDA_ERROR_INVALID_VALUE);             \
    *(made) = make_handle(kind, sizeof **(made));                    \
    return *(made) == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS; \
  }
#define ENDED(destroy, what, kind, error) \
  API CUresult destroy(what *made) { return end_handle(kind, made) ? CUDA_SUCCESS : (error); }

/* What is answered where somebody wants it. */
#define TELL(where, answer) do { if (!is_wrong(where)) *(where) = (answer); } while (0)

/* One function under another name. Whoever looks it up there may pass arguments beside, which nobody reads. */
#define ALSO(name, function) extern API __typeof__(function) name __attribute__((alias(#function)));
/* Work that is done when it is given; what there is nothing to do for; and what is not modelled, and reported. */
#define DONE(name) API int name(void) { add_work(); return 0; }
#define NOTHING(name) API int name(void) { return 0; }
#define REFUSED(name, error)                               \
  API int name(void) {                                     \
    report_unmodelled(#name, __builtin_return_address(0)); \
    return error;                                          \
  }
/* Something of a library's that is empty here: made, and given back. */
#define OBJECT(create, destroy, size, error) \
  API int create(void **made) {              \
    RETURN_IF(is_wrong(made), error);        \
    *made = make_handle(OBJECTS, size);      \
    return *made == NULL ? (error) : 0;      \
  }                                          \
  API int destroy(void *made) { return made == NULL || end_handle(OBJECTS, made) ? 0 : (error); }

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

/* An address that no program has memory at: none, a small number, or one of no address space. */
static inline bool is_wrong(const volatile void *address) {
  return (uintptr_t)address < 4096 || (uintptr_t)address >> 56 != 0;
}

/* handles.c: what was made and not yet given back, so that anything else is known; and what a program registered, of
 * which the value is a name or, once it was asked for, a kernel. */
enum handles { STREAMS = 1, EVENTS, GRAPHS, READY_GRAPHS, NODES, USER_OBJECTS, MODULES, FUNCTIONS, PIECES, POOLS, COMMS,
               OBJECTS, HOST_NAMES, HOST_KERNELS };
struct entry {
  const void *address;
  enum handles kind;
  const void *value;
};
struct entry *entry_of(const void *address); /* NULL if there is none; under the lock, until the next one enters */
bool enter(enum handles kind, const void *address, const void *value);
void *make_handle(enum handles kind, size_t size); /* of zeros */
bool is_handle(enum handles kind, const void *handle);
bool end_handle(enum handles kind, void *handle); /* false where it is none */
bool is_mapped(uint64_t address, size_t size);    /* whether the host has memory there */
bool is_code(const void *function);

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_UNKNOWN = 999,
};

/* card.c: the card, from the variable VRAMTUI_CARD. */
struct card {
  char name[96];
  int major, minor, multiprocessors, threads, shared, shared_optin, blocks, l2, clock, memory_clock, bus;
  size_t memory;  /* bytes, as cuDeviceTotalMem says */
  size_t context;       /* bytes that a process's context takes of it */
  size_t communicator, further; /* and NCCL's first of several ranks, any other */
  int devices;
};
const struct card *the_card(void);
int device_count(void);
int number_of_card(CUdevice device); /* among all of the machine; -1 where the process has no such device */
CUdevice device_of_card(int number);
bool has_links(void);
bool has_peers(void);

/* context.c: a device has one context, its primary one, whoever creates it. */
struct context {
  CUdevice device;
  int retained;
  unsigned flags;
  unsigned loaded; /* a bit for each of `enum load` */
  size_t bytes;    /* of its card, for what is loaded */
  uint64_t peers; /* a bit for each device whose memory is open to this one */
};
struct context *context_of(CUdevice device);
size_t context_bytes(CUdevice device);
enum load { BEGINNING, KERNELS, BLAS_HANDLE, STREAM, DNN, FFT, SOLVER };
bool load(struct context *context, enum load what); /* takes what that costs: of a handle or a stream each time */
void unload(struct context *context, enum load what);
struct context *current_context(void); /* that of this thread; NULL where it has none */
CUdevice current_device(void); /* the same of it, else the first */

/* memory.c: ranges of addresses. A card's memory is addresses alone; what the host copied there is kept. */
enum kind { DEVICE, HOST, MANAGED, REGISTERED, RESERVED, OPENED }; /* the last is another process's */
struct range {
  uint64_t start;
  size_t size;
  enum kind kind;
  CUdevice device;
  size_t charged;    /* bytes of the card that it takes */
  void *pool;        /* the memory pool that it came from */
  uint64_t id;       /* as CU_POINTER_ATTRIBUTE_BUFFER_ID */
  bool kept;         /* the host copied something into it */
};
struct range *range_of(uint64_t address);
bool is_on_card(const struct range *range);
bool is_reachable(uint64_t address, size_t size); /* memory of cards or of the host */
struct range *add_range(uint64_t start, size_t size, enum kind kind, CUdevice device);
void remove_range(struct range *range);
size_t resident_bytes(void);
uint64_t highest_gap(uint64_t low, uint64_t high, size_t size);
void *reserve_addresses(size_t size, size_t alignment, uint64_t wanted);
CUresult take_memory(CUdevice device, size_t size, void *pool, CUdeviceptr *address);
CUresult give_memory(CUdeviceptr address);
void forget(struct range *range);
bool charge(CUdevice device, size_t bytes); /* false where the card has no room */
bool charge_to(CUdevice device, size_t *held, size_t bytes, bool is_forced); /* as its memory, or its context's */
void discharge(CUdevice device, size_t bytes);
/* Until the end of the block this thread is alone at ranges, handles and graphs; it may be so twice. */
#define LOCKED int locked UNUSED __attribute__((cleanup(unlock_memory))) = lock_memory()
int lock_memory(void);
void unlock_memory(const int *locked);
CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size);
bool is_child_of_user(void); /* a process that was forked of one that had used CUDA, which CUDA refuses */
CUresult without_context(void); /* the error of a thread that has none */
void lock_nccl(void);
void unlock_nccl(void);
void forget_nccl(void);
void forget_contexts(void);
void forget_memory(void);
CUresult fill(CUdeviceptr to, uint32_t value, unsigned width, size_t count);
bool knows(CUdeviceptr address, size_t size); /* whether the host wrote what is there */
bool is_pickled(CUdeviceptr address);
#define LONGEST_COPY (4 * MIB) /* a longer one is not kept: weights, not ids or masks */

/* nccl.c: what other ranks sent to these addresses. */
void settle(CUdeviceptr address, size_t size);
void expect_nothing(CUdeviceptr address, size_t size);

/* graphs.c: streams, and what is captured on them. */
struct node {
  int kind; /* CU_GRAPH_NODE_TYPE_… */
};

struct graph {
  struct node **nodes;
  size_t count, room;
};

struct capture {
  uint64_t id;
  bool is_on;
  int mode;
  struct stream *origin;
  struct graph *graph;
};

struct stream {
  struct context *context;
  unsigned flags;
  int priority;
  uint64_t id;
  struct capture *capture;
};

struct capture *capture_of(struct stream *stream); /* NULL where it is not captured */
void set_capture(struct stream *stream, struct capture *capture);
bool is_stream(const struct stream *stream); /* a default one, or one that was made */
void add_graph_node(struct stream *stream, int kind);
void add_launch(struct stream *stream); /* of a kernel, the first of which loads more of the context */
void add_work(void); /* a node of what this thread captures, whatever the stream */
bool is_capturing(struct stream *stream);

/* report.c: what this process did, for who started it. */
void report_unmodelled(const char *name, void *caller);
void report_read(void *to, size_t bytes); /* of what kernels would have computed, by the host */
/* A change of this process's bytes, of them those of its context, and those of other processes. */
void report_used(CUdevice device, int64_t change, int64_t context, int64_t others);
bool report_refused(CUdevice device, size_t bytes); /* for which there was no room; false */
struct user {
  int pid;
  int64_t used;
};
/* Living processes of this run with memory on a card, but one, as many as there is room for: how many, and their bytes. */
int users_of(int number, struct user *users, int room, int without, int64_t *sum);
int64_t used_on(int number, int without);
int open_beside(int flags, const char *format, ...);    /* a file in the folder of reports */
int keep_others_waiting(void);
void let_others(int file);
void lock_report(void);
void unlock_report(void);
void forget_report(void);

/* runtime.c */
CUresult keep_error(CUresult result); /* for cudaGetLastError */
struct context *runtime_context(void);
CUresult without_runtime(void); /* the error where there is none */
int runtime_version(void); /* 12080 is CUDA 12.8 */

/* symbols.c */
const void *unmodelled(const char *name);

/* The driver's functions that its runtime calls. */
struct event;
struct function;
struct module;
CUresult cudaSetDevice(CUdevice device);
CUresult cuInit(unsigned flags);
CUresult cuGetErrorName(CUresult code, const char **text);
CUresult cuGetErrorString(CUresult code, const char **text);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int number, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device);
CUresult cuCtxSetCurrent(struct context *context);
CUresult cuCtxEnablePeerAccess(struct context *peer, unsigned flags);
CUresult cuCtxDisablePeerAccess(struct context *peer);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, struct stream *stream);
CUresult cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority);
CUresult cuStreamGetCaptureInfo_v3(struct stream *stream, int *status, uint64_t *id, struct graph **graph,
                                   struct node *const **after, const void **edges, size_t *count);
CUresult cuEventCreate(struct event **event, unsigned flags);
CUresult cuGetProcAddress_v2(const char *name, const void **function, int version, uint64_t flags, int *status);
CUresult cuModuleLoad(struct module **module);
CUresult cuModuleGetFunction(struct function **function, struct module *module, const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, struct module *module, const char *name);
CUresult cuFuncGetAttribute(int *value, int number, struct function *function);
CUresult cuFuncSetAttribute(struct function *function, int number, int value);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, struct function *function, int threads,
                                                              size_t dynamic, unsigned flags);
