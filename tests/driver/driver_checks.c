/* Checks of the driver from C: `driver_checks NAME` runs one of them; VRAMTUI_CARD says two cards of 4 GiB. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define BEGINNING (384 * MIB * 518 / 740) /* of a context that has 384 MiB where 740 are usual */
#define EXPECT(what)                                                \
  do {                                                              \
    if (!(what)) {                                                  \
      fprintf(stderr, "line %d: %s\n", __LINE__, #what);            \
      return 1;                                                     \
    }                                                               \
  } while (0)
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, ILLEGAL_STATE = 401 };

struct id {
  char bytes[128];
};
struct ipc {
  unsigned char bytes[64];
};
typedef uint64_t address;
typedef struct handle *handle;

int cublasCreate_v2(handle *);
int cublasDestroy_v2(handle);
int cudnnCreate(handle *);
int cudnnDestroy(handle);
int cudnnSetStream(handle, handle);
int cudnnGetStream(handle, handle *);
int cudnnBackendCreateDescriptor(int, void **);
int cudnnBackendSetAttribute(void *, int, int, int64_t, const void *);
int cudnnBackendExecute(handle, void *, void *);
int cudnnConvolutionForward(void);
int cuInit(unsigned);
int cuDeviceGetCount(int *);
int cuDeviceGet(int *, int);
int cuDeviceGetName(char *, int, int);
int cuDeviceGetAttribute(int *, int, int);
int cuDevicePrimaryCtxRetain(handle *, int);
int cuCtxSetCurrent(handle);
int cuCtxGetDevice(int *);
int cuCtxEnablePeerAccess(handle, unsigned);
int cuMemAlloc_v2(address *, size_t);
int cuMemFree_v2(address);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemcpyHtoD_v2(address, const void *, size_t);
int cuMemcpyDtoH_v2(void *, address, size_t);
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, uint16_t);
int cuMemsetD8_v2(address, unsigned char, size_t);
int cuMemAddressReserve(address *, size_t, size_t, address, unsigned long long);
int cuMemAddressFree(address, size_t);
int cuMemCreate(handle *, size_t, const void *, unsigned long long);
int cuMemRelease(handle);
int cuMemMap(address, size_t, size_t, handle, unsigned long long);
int cuMemUnmap(address, size_t);
int cuMemExportToShareableHandle(int *, handle, int, unsigned long long);
int cuMemImportFromShareableHandle(handle *, uintptr_t, int);
int cuMulticastGetGranularity(size_t *, const void *, int);
int cuMulticastCreate(handle *, const void *);
int cuMemAllocAsync(address *, size_t, handle);
int cuMemFreeAsync(address, handle);
int cuDeviceGetDefaultMemPool(handle *, int);
int cuMemPoolGetAttribute(handle, int, void *);
int cuPointerGetAttribute(void *, int, address);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuStreamCreate(handle *, unsigned);
int cuStreamBeginCapture_v2(handle, int);
int cuStreamEndCapture(handle, handle *);
int cuStreamIsCapturing(handle, int *);
int cuStreamWaitEvent(handle, handle, unsigned);
int cuEventCreate(handle *, unsigned);
int cuEventRecord(handle, handle);
int cuEventQuery(handle);
int cuEventDestroy_v2(handle);
int cuStreamDestroy_v2(handle);
int cuGraphDestroy(handle);
int cuMemPoolCreate(handle *, const void *);
int cuIpcGetMemHandle(struct ipc *, address);
int cuIpcOpenMemHandle_v2(address *, struct ipc, unsigned);
int cuIpcCloseMemHandle(address);
int cuIpcGetEventHandle(struct ipc *, handle);
int cudaIpcOpenMemHandle(address *, struct ipc, unsigned);
int cudaIpcOpenEventHandle(handle *, struct ipc);
int cuEventElapsedTime(float *, handle, handle);
int cuGraphGetNodes(handle, handle *, size_t *);
int cuGraphInstantiateWithFlags(handle *, handle, unsigned long long);
int cuGraphLaunch(handle, handle);
int cudaGraphExecUpdate(handle, handle, void *);
int cuModuleLoadData(handle *, const void *);
int cuModuleGetFunction(handle *, handle, const char *);
int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **,
                   void **);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, handle, int, size_t);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cudaSetDevice(int);
int cudaRuntimeGetVersion(int *);
int cudaDriverGetVersion(int *);
size_t cublasLtGetVersion(void);
int cudaGetDeviceProperties(void *, int);
int cudaGetDeviceProperties_v2(void *, int);
int ncclGetUniqueId(void *);
int ncclCommInitRank(handle *, int, struct id, int);
int ncclCommSplit(handle, int, int, handle *, void *);
int ncclCommUserRank(handle, int *);
int ncclAllGather(address, address, size_t, int, handle, handle);
int ncclAllReduce(address, address, size_t, int, int, handle, handle);
int ncclBroadcast(address, address, size_t, int, int, handle, handle);
int ncclSend(address, size_t, int, int, handle, handle);
int ncclRecv(address, size_t, int, int, handle, handle);

static int begin(int device) {
  handle context;
  return cuInit(0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context);
}

static size_t unused(void) {
  size_t left = 0, total;
  cuMemGetInfo_v2(&left, &total);
  return left;
}

static int devices(void) {
  int count, device, value;
  char name[64];
  EXPECT(cuInit(0) == 0 && cuDeviceGetCount(&count) == 0 && count == 2);
  EXPECT(cuDeviceGet(&device, 2) == INVALID_DEVICE);
  EXPECT(cuDeviceGetName(name, sizeof name, 1) == 0 && strcmp(name, "NVIDIA Test") == 0);
  EXPECT(cuDeviceGetAttribute(&value, 75, 0) == 0 && value == 8);    /* compute capability */
  EXPECT(cuDeviceGetAttribute(&value, 16, 0) == 0 && value == 108);  /* multiprocessors */
  EXPECT(cuDeviceGetAttribute(&value, 39, 0) == 0 && value == 2048); /* threads of one */
  return 0;
}

/* What stands where in cudaDeviceProp of CUDA 13 and of CUDA 12.8 (driver_types.h). */
static int properties(void) {
  static const struct {
    int newer, older, value;
  } NUMBERS[] = {{384, 388, 108}, {624, 640, 167936}, {604, 624, 2048}, {752, 776, 1}};
  char newer[2048], older[2048];
  memset(older, 7, sizeof older);
  EXPECT(cudaGetDeviceProperties(newer, 0) == 0 && cudaGetDeviceProperties_v2(older, 0) == 0);
  EXPECT(strcmp(older, "NVIDIA Test") == 0 && older[1031] == 0 && older[1032] == 7);
  for (size_t at = 0; at < sizeof NUMBERS / sizeof NUMBERS[0]; at++) {
    int first, second;
    memcpy(&first, newer + NUMBERS[at].newer, sizeof first);
    memcpy(&second, older + NUMBERS[at].older, sizeof second);
    EXPECT(first == NUMBERS[at].value && second == first);
  }
  EXPECT(cudaGetDeviceProperties_v2(older, 2) == INVALID_DEVICE);
  return 0;
}

static int allocation(void) {
  EXPECT(begin(0) == 0);
  size_t before = unused();
  EXPECT(before == 4 * GIB - BEGINNING); /* of the context */
  address first, second, third;
  EXPECT(cuMemAlloc_v2(&first, 1000) == 0 && first % (2 * MIB) == 0);
  EXPECT(cuMemAlloc_v2(&second, 3 * MIB) == 0 && second == first - 4 * MIB);
  EXPECT(unused() == before - 6 * MIB); /* in pages of 2 MiB */
  EXPECT(cuMemFree_v2(first) == 0 && cuMemFree_v2(first) == INVALID_VALUE);
  EXPECT(cuMemAlloc_v2(&third, 1) == 0 && third == first); /* the highest gap */
  EXPECT(cuMemFree_v2(third) == 0 && cuMemFree_v2(second) == 0 && cuMemFree_v2(0) == 0);
  EXPECT(unused() == before);
  EXPECT(cuMemAlloc_v2(&first, 0) == INVALID_VALUE);
  handle products;
  size_t handle_bytes = 384 * MIB * 65 / 740;
  EXPECT(cublasCreate_v2(&products) == 0 && unused() == before - handle_bytes);
  EXPECT(cublasDestroy_v2(products) == 0 && cublasCreate_v2(&products) == 0 && unused() == before - handle_bytes);
  return 0;
}

static int capacity(void) {
  EXPECT(begin(0) == 0);
  address whole, more;
  EXPECT(cuMemAlloc_v2(&whole, 4 * GIB) == OUT_OF_MEMORY);
  EXPECT(cuMemAlloc_v2(&whole, 4 * GIB - 270 * MIB) == 0 && unused() < 2 * MIB);
  EXPECT(cuMemAlloc_v2(&more, 1) == OUT_OF_MEMORY);
  EXPECT(begin(1) == 0 && cuMemAlloc_v2(&more, GIB) == 0); /* the other card is empty */
  int device;
  EXPECT(cuPointerGetAttribute(&device, 9, more + 5) == 0 && device == 1);
  void *pinned, *plain = (void *)((uintptr_t)capacity / 4096 * 4096); /* the host's has the device that was current */
  EXPECT(cuMemHostAlloc(&pinned, MIB, 0) == 0 && cuMemHostRegister_v2(plain, 4096, 0) == 0 && begin(0) == 0);
  EXPECT(cuPointerGetAttribute(&device, 9, (address)pinned) == 0 && device == 1);
  EXPECT(cuPointerGetAttribute(&device, 9, (address)plain) == 0 && device == 1);
  return 0;
}

static int virtual_memory(void) {
  struct {
    int type, handles, location, device;
    void *security;
    unsigned char flags[32];
  } property = {.type = 1, .location = 1};
  EXPECT(begin(0) == 0);
  size_t before = unused();
  address start;
  handle first, second;
  EXPECT(cuMemAddressReserve(&start, 64 * GIB, 0, 0, 0) == 0 && unused() == before); /* addresses alone */
  EXPECT(cuMemCreate(&first, 20 * MIB, &property, 0) == 0 && unused() == before - 20 * MIB);
  EXPECT(cuMemMap(start, 20 * MIB, 0, first, 0) == 0 && cuMemRelease(first) == 0);
  EXPECT(unused() == before - 20 * MIB); /* the mapping keeps it */
  EXPECT(cuMemCreate(&second, 4 * GIB, &property, 0) == OUT_OF_MEMORY);
  EXPECT(cuMemCreate(&second, 3 * MIB, &property, 0) == INVALID_VALUE); /* no whole page */
  EXPECT(cuMemUnmap(start, 20 * MIB) == 0 && unused() == before);
  EXPECT(cuMemAddressFree(start, GIB) == INVALID_VALUE && cuMemAddressFree(start, 64 * GIB) == 0);
  return 0;
}

/* What a context takes, of 384 MiB where a card takes 740: its beginning, kernels once, each handle and each stream. */
static int context(void) {
  handle module, kernel, blas, other, dnn, stream;
  EXPECT(begin(0) == 0);
  EXPECT(4 * GIB - unused() == BEGINNING);
  EXPECT(cuModuleLoadData(&module, "") == 0 && cuModuleGetFunction(&kernel, module, "kernel") == 0);
  size_t before = unused();
  for (int launch = 0; launch < 2; launch++) {
    EXPECT(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
    EXPECT(before - unused() == 384 * MIB * 92 / 740);
  }
  before = unused();
  EXPECT(cublasCreate_v2(&blas) == 0 && cublasCreate_v2(&other) == 0 && before - unused() == 2 * (384 * MIB * 65 / 740));
  before = unused();
  EXPECT(cudnnCreate(&dnn) == 0 && cudnnCreate(&dnn) == 0 && before - unused() == 384 * MIB * 18 / 740);
  before = unused();
  EXPECT(cuStreamCreate(&stream, 0) == 0 && before - unused() == 384 * MIB * 560 / (740 << 10));
  return 0;
}

/* A piece that another process imports, here this one: the card holds it once, and lets go of it with its owner. */
static int exporting(void) {
  struct {
    int type, handles, location, device;
    uint64_t rest[8];
  } property = {1, 1, 1, 0, {0}};
  struct {
    unsigned devices;
    size_t size, handles, flags;
  } group = {2, 2 * MIB, 1, 0};
  int file = -1, supported = 1;
  size_t size = 0, before;
  handle piece, other, all;
  address place;
  EXPECT(begin(0) == 0);
  before = unused();
  EXPECT(cuMemCreate(&piece, 4 * MIB, &property, 0) == 0 && cuMemExportToShareableHandle(&file, piece, 1, 0) == 0);
  EXPECT(cuMemExportToShareableHandle(&file, piece, 8, 0) == 801); /* a fabric's */
  EXPECT(cuMemImportFromShareableHandle(&other, (uintptr_t)file, 1) == 0 && other != piece);
  EXPECT(cuMemAddressReserve(&place, 4 * MIB, 0, 0, 0) == 0 && cuMemMap(place, 4 * MIB, 0, other, 0) == 0);
  EXPECT(before - unused() == 4 * MIB && cuMemUnmap(place, 4 * MIB) == 0 && cuMemRelease(other) == 0);
  EXPECT(before - unused() == 4 * MIB && cuMemRelease(piece) == 0 && before == unused());
  EXPECT(cuMemImportFromShareableHandle(&other, 0, 1) == INVALID_VALUE);
  EXPECT(cuDeviceGetAttribute(&supported, 132, 0) == 0 && supported == 0); /* multicast begins with 9.0 */
  EXPECT(cuMulticastGetGranularity(&size, &group, 1) == 0 && size == 512 * MIB);
  EXPECT(cuMulticastCreate(&all, &group) == 0 && before == unused());
  return 0;
}

static int pools(void) {
  EXPECT(begin(0) == 0);
  size_t before = unused();
  address taken;
  handle pool;
  uint64_t used;
  EXPECT(cuMemAllocAsync(&taken, 5 * MIB, NULL) == 0 && unused() == before - 6 * MIB);
  EXPECT(cuDeviceGetDefaultMemPool(&pool, 0) == 0 && cuMemPoolGetAttribute(pool, 7, &used) == 0 && used == 6 * MIB);
  EXPECT(cuMemFreeAsync(taken, NULL) == 0 && unused() == before);
  EXPECT(cuMemPoolGetAttribute(pool, 7, &used) == 0 && used == 0);
  EXPECT(cuMemPoolGetAttribute(pool, 8, &used) == 0 && used == 6 * MIB);
  return 0;
}

static int values(void) {
  EXPECT(begin(0) == 0);
  address place;
  int64_t labels[4] = {7, -100, 3, 0}, back[4] = {1, 1, 1, 1};
  float loss = 5;
  EXPECT(cuMemAlloc_v2(&place, MIB) == 0);
  EXPECT(cuMemcpyDtoH_v2(back, place, sizeof back) == 0 && back[0] == 0); /* nobody wrote it */
  EXPECT(cuMemcpyHtoD_v2(place, labels, sizeof labels) == 0);
  EXPECT(cuMemcpyDtoH_v2(back, place, sizeof back) == 0 && memcmp(labels, back, sizeof back) == 0);
  EXPECT(cuMemcpyDtoH_v2(&loss, place + 8, sizeof loss) == 0 && loss == 0); /* -100's bits would be NaN */
  EXPECT(cuMemcpyHtoD_v2(place, labels + 1, 8) == 0 && cuMemcpyDtoH_v2(back, place, 8) == 0 && back[0] == -100);
  EXPECT(cuMemsetD8_v2(place, 0, MIB) == 0 && cuMemcpyDtoH_v2(back, place, sizeof back) == 0 && back[0] == 0);
  EXPECT(cuMemcpyHtoD_v2(place, labels, 8) == 0 && cuMemcpyHtoD_v2(place + 8192, labels, sizeof labels) == 0);
  _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)place, -8192, 0, 0, 1); /* PyTorch gives it back */
  EXPECT(cuMemcpyDtoH_v2(back, place, 8) == 0 && back[0] == 0);
  EXPECT(cuMemcpyDtoH_v2(back, place + 8192, sizeof back) == 0 && memcmp(labels, back, sizeof back) == 0);
  EXPECT(cuMemcpyHtoD_v2(place, labels, sizeof labels) == 0 && cuMemFree_v2(place) == 0);
  address again;
  EXPECT(cuMemAlloc_v2(&again, MIB) == 0 && again == place);
  EXPECT(cuMemcpyDtoH_v2(back, again, sizeof back) == 0 && back[0] == 0); /* the next owner reads zeros */
  return 0;
}

static int events(void) {
  EXPECT(begin(0) == 0);
  handle first, second;
  float milliseconds = -1;
  EXPECT(cuEventCreate(&first, 0) == 0 && cuEventCreate(&second, 0) == 0);
  EXPECT(cuEventRecord(first, NULL) == 0 && cuEventRecord(second, NULL) == 0 && cuEventQuery(second) == 0);
  EXPECT(cuEventElapsedTime(&milliseconds, first, second) == 0 && milliseconds == 1);
  usleep(5000); /* the host's chances, by which no kernel is chosen */
  EXPECT(cuEventRecord(second, NULL) == 0);
  EXPECT(cuEventElapsedTime(&milliseconds, first, second) == 0 && milliseconds == 1);
  return 0;
}

/* Two ranks, a process each: what the host wrote arrives, and what it did not write reads as zeros. */
static int collectives(void) {
  struct id id;
  EXPECT(ncclGetUniqueId(&id) == 0);
  pid_t other = fork();
  int rank = other == 0, status = 0;
  handle comm, half;
  address place;
  int64_t back[4] = {0}, own = 10 + rank, count = 5;
  EXPECT(begin(rank) == 0 && cudaSetDevice(rank) == 0);
  size_t before = unused();
  EXPECT(ncclCommInitRank(&comm, 2, id, rank) == 0 && before - unused() == 64 * MIB + 384 * MIB * 92 / 740); /* its kernels */
  EXPECT(cuMemAlloc_v2(&place, MIB) == 0 && cuMemcpyHtoD_v2(place + 512, &own, 8) == 0);
  EXPECT(ncclAllGather(place + 512, place, 1, 4, comm, NULL) == 0 && cuMemcpyDtoH_v2(back, place, 16) == 0);
  EXPECT(back[0] == 10 && back[1] == 11);
  EXPECT(ncclAllReduce(place + 512, place + 512, 1, 4, 0, comm, NULL) == 0);
  EXPECT(cuMemcpyDtoH_v2(back, place + 512, 8) == 0 && back[0] == 21);
  if (rank == 0) {
    EXPECT(cuMemcpyHtoD_v2(place + 1024, &count, 8) == 0 && ncclSend(place + 1024, 1, 4, 1, comm, NULL) == 0);
  } else {
    EXPECT(ncclRecv(place + 1024, 1, 4, 0, comm, NULL) == 0);
  }
  EXPECT(cuMemcpyDtoH_v2(back, place + 1024, 8) == 0 && back[0] == 5);
  EXPECT(ncclBroadcast(place + 2048, place + 2048, 1, 4, 0, comm, NULL) == 0); /* nobody wrote it */
  EXPECT(cuMemcpyDtoH_v2(back, place + 2048, 8) == 0 && back[0] == 0);
  before = unused();
  EXPECT(ncclCommSplit(comm, 0, 1 - rank, &half, NULL) == 0 && ncclCommUserRank(half, &status) == 0);
  EXPECT(status == 1 - rank && before - unused() == 32 * MIB); /* one more communicator */
  if (other == 0) {
    _exit(0);
  }
  EXPECT(waitpid(other, &status, 0) == other && status == 0);
  return 0;
}

/* Memory of one process in another: addresses of its own, open twice and gone with the second close; the card holds it
 * once, and a process does not open its own. */
static int sharing(void) {
  int to[2], back[2], status = 0;
  struct ipc memory, signal;
  address place, again;
  handle event;
  EXPECT(pipe(to) == 0 && pipe(back) == 0);
  pid_t other = fork();
  EXPECT(begin(0) == 0);
  if (other != 0) {
    EXPECT(cuMemAlloc_v2(&place, 3 * MIB) == 0 && cuIpcGetMemHandle(&memory, place + MIB) == 0);
    EXPECT(cuIpcOpenMemHandle_v2(&again, memory, 1) == INVALID_CONTEXT);
    EXPECT(cuMemAllocAsync(&again, MIB, NULL) == 0);
    EXPECT(cuIpcGetMemHandle(&signal, again) == INVALID_VALUE); /* a pool's */
    EXPECT(cuEventCreate(&event, 4) == 0 && cuIpcGetEventHandle(&signal, event) == 0);
    EXPECT(write(to[1], &memory, 64) == 64 && write(to[1], &signal, 64) == 64);
    EXPECT(read(back[0], &status, 1) == 1 && waitpid(other, &status, 0) == other && status == 0);
    return 0;
  }
  int64_t value = 7;
  EXPECT(read(to[0], &memory, 64) == 64 && read(to[0], &signal, 64) == 64);
  size_t before = unused();
  EXPECT(cudaIpcOpenMemHandle(&place, memory, 1) == 0 && cuIpcOpenMemHandle_v2(&again, memory, 1) == 0);
  EXPECT(place == again && unused() == before);
  EXPECT(cuMemcpyHtoD_v2(place + 512, &value, 8) == 0 && cuPointerGetAttribute(&status, 9, place) == 0 && status == 0);
  EXPECT(cuMemFree_v2(place) == INVALID_VALUE && cuIpcGetMemHandle(&memory, place) == INVALID_VALUE);
  EXPECT(cuIpcCloseMemHandle(place) == 0 && cuIpcCloseMemHandle(place) == 0);
  EXPECT(cuIpcCloseMemHandle(place) == INVALID_VALUE && cuPointerGetAttribute(&status, 9, place) == INVALID_VALUE);
  EXPECT(cudaIpcOpenEventHandle(&event, signal) == 0 && cuEventQuery(event) == 0);
  EXPECT(write(back[1], "", 1) == 1);
  _exit(0);
}

static int graphs(void) {
  EXPECT(begin(0) == 0);
  handle stream, side, event, module, kernel, graph, ready;
  int capturing = 0;
  size_t nodes = 0;
  EXPECT(cuStreamCreate(&stream, 0) == 0 && cuStreamCreate(&side, 0) == 0 && cuEventCreate(&event, 0) == 0);
  EXPECT(cuModuleLoadData(&module, "") == 0 && cuModuleGetFunction(&kernel, module, "kernel") == 0);
  EXPECT(cuStreamEndCapture(stream, &graph) == ILLEGAL_STATE);
  EXPECT(cuStreamBeginCapture_v2(stream, 0) == 0);
  EXPECT(cuEventRecord(event, stream) == 0 && cuStreamWaitEvent(side, event, 0) == 0);
  EXPECT(cuStreamIsCapturing(side, &capturing) == 0 && capturing == 1); /* it joined */
  EXPECT(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, side, NULL, NULL) == 0);
  EXPECT(cuStreamEndCapture(stream, &graph) == 0);
  EXPECT(cuStreamIsCapturing(side, &capturing) == 0 && capturing == 0);
  EXPECT(cuGraphGetNodes(graph, NULL, &nodes) == 0 && nodes == 1);
  EXPECT(cuGraphInstantiateWithFlags(&ready, graph, 0) == 0 && cuGraphLaunch(ready, stream) == 0);
  char result[24] = {[0] = 1}; /* cudaGraphExecUpdateResultInfo: what went wrong, and where */
  EXPECT(cudaGraphExecUpdate(ready, graph, result) == 0 && result[0] == 0);
  return 0;
}

static int kernels(void) {
  EXPECT(begin(0) == 0);
  handle module, kernel;
  int blocks;
  EXPECT(cuModuleLoadData(&module, "") == 0 && cuModuleGetFunction(&kernel, module, "kernel") == 0);
  EXPECT(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0) == 0 && blocks == 8);
  EXPECT(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 100 << 10) == 0 && blocks == 1);
  return 0;
}

static int names(void) {
  void *found, *other;
  EXPECT(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, 0, NULL) == 0 && found == (void *)cuMemAlloc_v2);
  EXPECT(cuGetProcAddress_v2("cuStreamGetCaptureInfo", &found, 12000, 0, NULL) == 0);
  EXPECT(cuGetProcAddress_v2("cuStreamGetCaptureInfo", &other, 13000, 0, NULL) == 0 && other != found);
  EXPECT(cuGetProcAddress_v2("cuEventQuery_ptsz", &found, 13000, 0, NULL) == 0 && found == (void *)cuEventQuery);
  EXPECT(cuGetProcAddress_v2("cuOfTheFuture", &found, 13000, 0, NULL) == 0 && found != NULL);
  EXPECT(((int (*)(void))found)() == 801); /* not supported, and reported */
  return 0;
}

/* A stand-in for the job's own cuDNN lies in the folder: what reaches it is a letter each. */
static int deep_learning(void) {
  void *library = dlopen("libcudnn.so.9", RTLD_NOW), *made, *heuristics;
  EXPECT(library != NULL);
  const char *(*told)(void) = (const char *(*)(void))dlsym(library, "told");
  handle own, stream = NULL, found;
  EXPECT(cuInit(0) == 0 && cudnnCreate(&own) == 0 && own != NULL);
  EXPECT(cuStreamCreate(&stream, 0) == 0 && cudnnSetStream(own, stream) == 0);
  EXPECT(cudnnGetStream(own, &found) == 0 && found == stream);
  EXPECT(cudnnBackendCreateDescriptor(15, &made) == 0); /* a graph: its handle is not passed on */
  EXPECT(cudnnBackendSetAttribute(made, 800, 0, 1, &own) == 0 && cudnnBackendSetAttribute(made, 801, 15, 1, &made) == 0);
  EXPECT(strcmp(told(), "c15 s801 ") == 0);
  EXPECT(cudnnBackendCreateDescriptor(4, &heuristics) == 0); /* heuristics: told of the card, which is described once */
  EXPECT(strcmp(told(), "c15 s801 c4 c38 s2702:80000 f s204 ") == 0);
  EXPECT(cudnnBackendCreateDescriptor(5, &made) == 0);
  EXPECT(strcmp(told(), "c15 s801 c4 c38 s2702:80000 f s204 c5 s407 ") == 0);
  EXPECT(cudnnBackendExecute(own, made, NULL) == 0 && cudnnDestroy(own) == 0);
  EXPECT(cudnnConvolutionForward() == 3000); /* not supported, and reported */
  return 0;
}

/* Handles that are none, were given back, belong to something else; sizes and devices that no card has. */
static int handles(void) {
  enum { INVALID_HANDLE = 400 };
  struct {
    int type, handles, location, device;
    uint64_t rest[8];
  } property = {1, 1, 1, 0, {0}};
  int pool_of[32] = {1, 0, 1, 99};
  handle stream, event, graph, piece, pool;
  address place, reserved;
  float time;
  char byte;
  EXPECT(begin(0) == 0);
  EXPECT(cuEventCreate(&event, 0) == 0 && cuEventRecord(NULL, NULL) == INVALID_HANDLE);
  EXPECT(cuEventRecord(event, event) == INVALID_HANDLE && cuEventElapsedTime(&time, event, NULL) == INVALID_HANDLE);
  EXPECT(cuStreamCreate(&stream, 0) == 0 && cuStreamWaitEvent(stream, NULL, 0) == INVALID_HANDLE);
  EXPECT(cuEventDestroy_v2(event) == 0 && cuEventDestroy_v2(event) == INVALID_HANDLE);
  EXPECT(cuStreamBeginCapture_v2(stream, 0) == 0 && cuStreamEndCapture(stream, &graph) == 0);
  EXPECT(cuStreamDestroy_v2(stream) == 0 && cuStreamDestroy_v2(stream) == INVALID_HANDLE);
  EXPECT(cuMemAllocAsync(&place, MIB, stream) == INVALID_HANDLE && cuEventRecord(event, stream) == INVALID_HANDLE);
  EXPECT(cuGraphDestroy(graph) == 0 && cuGraphDestroy(graph) == INVALID_VALUE && cuGraphDestroy(NULL) == INVALID_VALUE);
  EXPECT(cuMemCreate(&piece, 2 * MIB, &property, 0) == 0 && cuMemRelease(NULL) == INVALID_VALUE);
  EXPECT(cuMemRelease(piece) == 0 && cuMemRelease(piece) == INVALID_VALUE);
  EXPECT(cuMemCreate(&piece, -2 * MIB, &property, 0) == OUT_OF_MEMORY);
  EXPECT(cuMemAddressReserve(&reserved, -2 * MIB, 4 * MIB, 0, 0) == OUT_OF_MEMORY);
  EXPECT(cuMemAlloc_v2(&place, 2 * MIB) == 0 && cuMemcpyDtoH_v2(&byte, place + 2 * MIB, 1) == INVALID_VALUE);
  EXPECT(cuMemcpyHtoD_v2(place, &byte, -1) == INVALID_VALUE && cuMemsetD8_v2(place + MIB, 0, 2 * MIB) == INVALID_VALUE);
  EXPECT(cuMemcpyHtoD_v2(place, (void *)-1, 1) == INVALID_VALUE && cuMemcpyHtoD_v2(place, NULL, 1) == INVALID_VALUE);
  EXPECT(cuMemPoolCreate(&pool, pool_of) == INVALID_DEVICE && (pool_of[3] = -1, 1));
  EXPECT(cuMemPoolCreate(&pool, pool_of) == INVALID_DEVICE && cuMemPoolCreate(NULL, pool_of) == INVALID_VALUE);
  EXPECT(cuCtxSetCurrent((handle)&property) == INVALID_CONTEXT && ncclCommUserRank(NULL, pool_of) == 4);
  return 0;
}

/* What may be kept of copies is what is there, not what ever was; what is small always is. */
static int budget(void) {
  enum { PIECE = 4 << 20, PIECES = 200 };
  address batch, weights, ids;
  int64_t sent[2] = {11, 12}, back[2];
  static int64_t piece[PIECE / sizeof(int64_t)];
  EXPECT(begin(0) == 0 && cuMemAlloc_v2(&batch, PIECE) == 0 && cuMemAlloc_v2(&ids, MIB) == 0);
  for (int time = 0; time < PIECES; time++) { /* 800 MiB, one after another */
    piece[1] = time;
    EXPECT(cuMemcpyHtoD_v2(batch, piece, PIECE) == 0);
  }
  EXPECT(cuMemcpyDtoH_v2(back, batch, sizeof back) == 0 && back[1] == PIECES - 1);
  EXPECT(cuMemAlloc_v2(&weights, (size_t)PIECES * PIECE) == 0);
  memset(piece, 1, PIECE);
  for (int at = 0; at < PIECES; at++) { /* at once */
    EXPECT(cuMemcpyHtoD_v2(weights + (address)at * PIECE, piece, PIECE) == 0);
  }
  EXPECT(cuMemcpyDtoH_v2(back, weights + (address)(PIECES - 1) * PIECE, sizeof back) == 0 && back[0] == 0);
  EXPECT(cuMemcpyHtoD_v2(ids, sent, sizeof sent) == 0 && cuMemcpyDtoH_v2(back, ids, sizeof back) == 0);
  EXPECT(back[0] == 11 && back[1] == 12);
  EXPECT(cuMemFree_v2(weights) == 0 && cuMemcpyHtoD_v2(batch, piece, PIECE) == 0);
  for (int time = 0; time < PIECES; time++) { /* there is room again */
    EXPECT(cuMemcpyHtoD_v2(batch, piece, PIECE) == 0);
  }
  EXPECT(cuMemcpyDtoH_v2(back, batch, sizeof back) == 0 && back[1] == 0x0101010101010101);
  return 0;
}

/* Of the runtime that the job brings; the driver is new enough for either. */
static int versions(void) {
  int runtime = 0, driver = 0;
  EXPECT(cudaRuntimeGetVersion(&runtime) == 0 && cudaDriverGetVersion(&driver) == 0 && driver == 13000);
  EXPECT(runtime == 13000 && cublasLtGetVersion() == 130000);
  void *brought = dlopen("libcudart.so.12", RTLD_NOW);
  EXPECT(brought != NULL && cudaRuntimeGetVersion(&runtime) == 0 && runtime == 12080);
  EXPECT(cublasLtGetVersion() == 120800 && dlclose(brought) == 0);
  return 0;
}

int main(int count, char **words) {
  static const struct {
    const char *name;
    int (*check)(void);
  } CHECKS[] = {{"devices", devices}, {"properties", properties}, {"allocation", allocation}, {"capacity", capacity},
                {"virtual_memory", virtual_memory}, {"exporting", exporting}, {"context", context},
                {"pools", pools}, {"values", values},
                {"events", events}, {"collectives", collectives}, {"sharing", sharing}, {"graphs", graphs},
                {"kernels", kernels}, {"names", names}, {"deep_learning", deep_learning}, {"versions", versions},
                {"budget", budget}, {"handles", handles}};
  for (size_t at = 0; at < sizeof CHECKS / sizeof CHECKS[0]; at++) {
    if (count < 2) {
      puts(CHECKS[at].name);
    } else if (strcmp(CHECKS[at].name, words[1]) == 0) {
      return CHECKS[at].check();
    }
  }
  return count < 2 ? 0 : 2;
}
