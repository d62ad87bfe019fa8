/* The runtime library's side of kernels: what a program registers when it is loaded (crt/host_runtime.h's documented
 * hooks of nvcc's output), attributes, launches; and the properties of a device. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

/* Host addresses of kernels and variables, with their names: a table that doubles when it is two thirds full. */
struct entry {
  const void *host;
  const char *name;
  struct function *function;
};

static struct entry *entries;
static size_t entry_count, entry_room;
static struct module *whole; /* every registered kernel is in one module */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry *place_of(struct entry *table, size_t room, const void *host) {
  size_t at = ((uintptr_t)host >> 4) * 0x9e3779b97f4a7c15u % room;
  while (table[at].host != NULL && table[at].host != host) {
    at = (at + 1) % room;
  }
  return &table[at];
}

static void enter(const void *host, const char *name) {
  pthread_mutex_lock(&lock);
  if (3 * entry_count >= 2 * entry_room) {
    size_t more = entry_room == 0 ? 1 << 14 : 2 * entry_room;
    struct entry *table = calloc(more, sizeof *table);
    if (table == NULL) {
      abort();
    }
    for (size_t at = 0; at < entry_room; at++) {
      if (entries[at].host != NULL) {
        *place_of(table, more, entries[at].host) = entries[at];
      }
    }
    free(entries);
    entries = table;
    entry_room = more;
  }
  struct entry *entry = place_of(entries, entry_room, host);
  entry_count += entry->host == NULL;
  *entry = (struct entry){.host = host, .name = name};
  pthread_mutex_unlock(&lock);
}

/* The kernel behind a host's address; a handle of our own, as cudaLibraryGetKernel gives it, is the kernel itself. */
static struct function *function_of(const void *host) {
  struct function *found = NULL;
  pthread_mutex_lock(&lock);
  struct entry *entry = entry_room == 0 ? NULL : place_of(entries, entry_room, host);
  if (entry == NULL || entry->host == NULL) {
    found = (struct function *)host;
  } else {
    if (whole == NULL) {
      cuLibraryLoadData(&whole, NULL, NULL, NULL, 0, NULL, NULL, 0);
    }
    if (entry->function == NULL) {
      cuModuleGetFunction(&entry->function, whole, entry->name);
    }
    found = entry->function;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

API void **__cudaRegisterFatBinary(void *image) {
  void **handle = malloc(sizeof *handle);
  if (handle != NULL) {
    *handle = image;
  }
  return handle;
}
API void __cudaRegisterFatBinaryEnd(void **handle UNUSED) {}
API void __cudaUnregisterFatBinary(void **handle UNUSED) {}
API char __cudaInitModule(void **handle UNUSED) { return 1; }
API void __cudaRegisterFunction(void **handle UNUSED, const char *host, char *device UNUSED, const char *name,
                                int limit UNUSED, void *tid UNUSED, void *bid UNUSED, void *block UNUSED,
                                void *grid UNUSED, int *warp UNUSED) {
  enter(host, name);
}
API void __cudaRegisterVar(void **handle UNUSED, char *host, char *device UNUSED, const char *name,
                           int is_external UNUSED, size_t size UNUSED, int is_constant UNUSED, int is_global UNUSED) {
  enter(host, name);
}
API void __cudaRegisterManagedVar(void **handle UNUSED, void **host, char *device UNUSED, const char *name,
                                  int is_external UNUSED, size_t size UNUSED, int is_constant UNUSED,
                                  int is_global UNUSED) {
  enter(host, name);
}

struct size3 {
  unsigned x, y, z;
};

/* What `<<<…>>>` says, from its place to the launch. */
static __thread struct {
  struct size3 grid, block;
  size_t shared;
  struct stream *stream;
} pushed[16];
static __thread int pushed_count;

API unsigned __cudaPushCallConfiguration(struct size3 grid, struct size3 block, size_t shared, struct stream *stream) {
  RETURN_IF(pushed_count == 16, 1);
  pushed[pushed_count].grid = grid;
  pushed[pushed_count].block = block;
  pushed[pushed_count].shared = shared;
  pushed[pushed_count++].stream = stream;
  return 0;
}
API CUresult __cudaPopCallConfiguration(struct size3 *grid, struct size3 *block, size_t *shared,
                                        struct stream **stream) {
  RETURN_IF(pushed_count == 0, CUDA_ERROR_INVALID_VALUE);
  pushed_count--;
  *grid = pushed[pushed_count].grid;
  *block = pushed[pushed_count].block;
  *shared = pushed[pushed_count].shared;
  *stream = pushed[pushed_count].stream;
  return CUDA_SUCCESS;
}
ANSWER(__cudaGetKernel, (struct function **kernel, const void *host), kernel, function_of(host))
static CUresult launch(struct stream *stream) {
  RETURN_IF(runtime_context() == NULL, keep_error(CUDA_ERROR_NO_DEVICE));
  add_graph_node(stream, 0);
  return CUDA_SUCCESS;
}

API CUresult __cudaLaunchKernel(struct function *kernel UNUSED, struct size3 grid UNUSED, struct size3 block UNUSED,
                                void **arguments UNUSED, size_t shared UNUSED, struct stream *stream) {
  return launch(stream);
}
API CUresult cudaLaunchKernel(const void *kernel UNUSED, struct size3 grid UNUSED, struct size3 block UNUSED,
                              void **arguments UNUSED, size_t shared UNUSED, struct stream *stream) {
  return launch(stream);
}
API CUresult cudaLaunchCooperativeKernel(const void *kernel UNUSED, struct size3 grid UNUSED,
                                         struct size3 block UNUSED, void **arguments UNUSED, size_t shared UNUSED,
                                         struct stream *stream) {
  return launch(stream);
}

/* cudaLaunchConfig_t as far as it is read. */
struct launch_config {
  struct size3 grid, block;
  size_t shared;
  struct stream *stream;
};

API CUresult cudaLaunchKernelExC(const struct launch_config *config, const void *kernel UNUSED,
                                 void **arguments UNUSED) {
  return launch(config->stream);
}

struct function_attributes {
  size_t shared, constant, local;
  int max_threads, registers, ptx, binary, cache, max_dynamic, carveout;
  int cluster[6], reserved[16];
};

API CUresult cudaFuncGetAttributes(struct function_attributes *answer, const void *kernel) {
  struct function *function = function_of(kernel);
  int values[10] = {0};
  for (int at = 0; at < 10; at++) {
    cuFuncGetAttribute(&values[at], at, function);
  }
  *answer = (struct function_attributes){
      .shared = (size_t)values[1],
      .constant = (size_t)values[2],
      .local = (size_t)values[3],
      .max_threads = values[0],
      .registers = values[4],
      .ptx = values[5],
      .binary = values[6],
      .max_dynamic = values[8],
      .carveout = values[9],
  };
  return CUDA_SUCCESS;
}
API CUresult cudaFuncSetAttribute(const void *kernel, int number, int value) {
  return keep_error(cuFuncSetAttribute(function_of(kernel), number, value));
}
API CUresult cudaKernelSetAttributeForDevice(struct function *kernel, int number, int value, CUdevice device UNUSED) {
  return keep_error(cuFuncSetAttribute(kernel, number, value));
}
API CUresult cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int threads,
                                                                    size_t shared, unsigned flags) {
  return keep_error(
      cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function_of(kernel), threads, shared, flags));
}
API CUresult cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads,
                                                           size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}
API CUresult cudaLibraryLoadData(struct module **library, const void *image, void *options, void **values,
                                 unsigned count, void *own_options, void **own_values, unsigned own_count) {
  return cuLibraryLoadData(library, image, options, values, count, own_options, own_values, own_count);
}

static CUresult symbol_address(CUdeviceptr *address, const void *host) {
  pthread_mutex_lock(&lock);
  struct entry *entry = entry_room == 0 ? NULL : place_of(entries, entry_room, host);
  const char *name = entry == NULL ? NULL : entry->name;
  if (whole == NULL) {
    cuLibraryLoadData(&whole, NULL, NULL, NULL, 0, NULL, NULL, 0);
  }
  pthread_mutex_unlock(&lock);
  return name == NULL ? CUDA_ERROR_INVALID_VALUE : cuModuleGetGlobal_v2(address, NULL, whole, name);
}

API CUresult cudaGetSymbolAddress(CUdeviceptr *address, const void *host) {
  return runtime_context() == NULL ? keep_error(CUDA_ERROR_NO_DEVICE) : keep_error(symbol_address(address, host));
}
API CUresult cudaMemcpyToSymbol(const void *host, CUdeviceptr from, size_t size, size_t offset, int kind UNUSED) {
  CUdeviceptr address;
  CUresult result = cudaGetSymbolAddress(&address, host);
  return result == CUDA_SUCCESS ? copy(address + offset, from, size) : result;
}

/* cudaDeviceProp of CUDA 13 (driver_types.h); its sizes of textures and surfaces, 39 numbers, stay zero. */
struct properties {
  char name[256];
  unsigned char uuid[16], luid[8];
  unsigned luid_mask;
  size_t memory, shared_per_block;
  int registers_per_block, warp;
  size_t pitch;
  int max_threads, block_dim[3], grid_dim[3];
  size_t constant;
  int major, minor;
  size_t texture_alignment, texture_pitch;
  int multiprocessors, integrated, map_host, textures[39];
  size_t surface_alignment;
  int concurrent_kernels, ecc, bus, device, domain, tcc, engines, unified, bus_width, l2, persisting_l2;
  int threads_per_multiprocessor, priorities, global_l1, local_l1;
  size_t shared_per_multiprocessor;
  int registers_per_multiprocessor, managed, multi_gpu, multi_gpu_group, host_atomics, pageable, concurrent_managed;
  int preemption, registered_pointer, cooperative;
  size_t shared_optin;
  int host_page_tables, direct_managed, blocks_per_multiprocessor, window;
  size_t reserved_shared;
  int host_register, sparse, read_only_register, timeline, pools, rdma;
  unsigned rdma_flush;
  int rdma_order;
  unsigned pool_handles;
  int deferred, ipc_events, cluster, function_pointers, numa_config, numa_id, mps, host_numa;
  unsigned pci_device, pci_subsystem;
  int multinode, reserved[56];
};

static int asked(int number, CUdevice device) {
  int value = 0;
  cuDeviceGetAttribute(&value, number, device);
  return value;
}

API CUresult cudaGetDeviceProperties(struct properties *answer, CUdevice device) {
  RETURN_IF(context_of(device) == NULL, keep_error(CUDA_ERROR_INVALID_DEVICE));
  *answer = (struct properties){
      .memory = the_card()->memory,
      .shared_per_block = (size_t)asked(8, device),
      .registers_per_block = asked(12, device),
      .warp = 32,
      .pitch = (size_t)asked(11, device),
      .max_threads = asked(1, device),
      .block_dim = {asked(2, device), asked(3, device), asked(4, device)},
      .grid_dim = {asked(5, device), asked(6, device), asked(7, device)},
      .constant = (size_t)asked(9, device),
      .major = asked(75, device),
      .minor = asked(76, device),
      .texture_alignment = (size_t)asked(14, device),
      .texture_pitch = (size_t)asked(51, device),
      .multiprocessors = asked(16, device),
      .map_host = 1,
      .surface_alignment = (size_t)asked(30, device),
      .concurrent_kernels = 1,
      .bus = asked(33, device),
      .engines = asked(40, device),
      .unified = 1,
      .bus_width = asked(37, device),
      .l2 = asked(38, device),
      .persisting_l2 = asked(108, device),
      .threads_per_multiprocessor = asked(39, device),
      .priorities = 1,
      .global_l1 = 1,
      .local_l1 = 1,
      .shared_per_multiprocessor = (size_t)asked(81, device),
      .registers_per_multiprocessor = asked(82, device),
      .managed = 1, .concurrent_managed = 1, .preemption = 1, .registered_pointer = 1, .cooperative = 1,
      .shared_optin = (size_t)asked(97, device),
      .blocks_per_multiprocessor = asked(106, device),
      .window = asked(109, device),
      .reserved_shared = (size_t)asked(111, device),
      .host_register = 1, .pools = 1, .pool_handles = 1, .ipc_events = 1,
      .cluster = asked(120, device),
      .function_pointers = 1, .numa_id = -1, .host_numa = -1,
  };
  cuDeviceGetName(answer->name, sizeof answer->name, device);
  cuDeviceGetUuid_v2(answer->uuid, device);
  return CUDA_SUCCESS;
}
/* As CUDA 12 has it: with a clock's rate and five numbers more, which stay zero. */
API CUresult cudaGetDeviceProperties_v2(char *answer, CUdevice device) {
  static const struct { unsigned from, to, size; } PARTS[] = {
      {0, 0, 384}, {384, 388, 4}, {388, 396, 8}, {396, 408, 156}, {552, 568, 40}, {592, 612, 28}, {624, 640, 28},
      {652, 672, 20}, {672, 696, 84}};
  struct properties newer = {0};
  CUresult result = cudaGetDeviceProperties(&newer, device);
  memset(answer, 0, 1032);
  for (size_t at = 0; at < sizeof PARTS / sizeof PARTS[0]; at++) {
    memcpy(answer + PARTS[at].to, (char *)&newer + PARTS[at].from, PARTS[at].size);
  }
  return result;
}
