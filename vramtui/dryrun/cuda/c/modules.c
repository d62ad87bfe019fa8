/* Modules, libraries, kernels: found by their names, never read and never run. */
#include "driver.h"

enum { MAX_THREADS, SHARED, CONSTANT, LOCAL, REGISTERS, PTX, BINARY, CACHE_CA, MAX_DYNAMIC_SHARED, CARVEOUT, ATTRIBUTES = 16 };

struct function {
  struct module *module;
  int attributes[ATTRIBUTES];
  struct function *next;
  char name[];
};

struct global {
  char *name;
  CUdeviceptr address;
  struct global *next;
};

struct module {
  struct function *functions;
  struct global *globals;
};

#define GLOBAL_SIZE ((size_t)4096) /* of a variable of a module, whose real size is not read */

/* For which capability a kernel was compiled: PyTorch's builds hold no code for 8.7, 8.9, 10.3 and 12.1 of their own,
 * and CUB looks for the one that it has. */
static int compiled_for(void) {
  int version = the_card()->major * 10 + the_card()->minor;
  switch (version) {
    case 87: case 89: return 86;
    case 103: return 100;
    case 121: return 120;
    default: return version;
  }
}

/* What is loaded is not read, wherever it comes from. */
MADE(cuModuleLoad, (struct module **module), module, MODULES)
ALSO(cuModuleLoadData, cuModuleLoad) ALSO(cuModuleLoadDataEx, cuModuleLoad) ALSO(cuModuleLoadFatBinary, cuModuleLoad)
ALSO(cuLibraryLoadData, cuModuleLoad) ALSO(cuLibraryLoadFromFile, cuModuleLoad) ALSO(cudaLibraryLoadData, cuModuleLoad)
ANSWER(cuModuleGetLoadingMode, (int *mode), mode, 2) /* lazy */

API CUresult cuModuleGetFunction(struct function **function, struct module *module, const char *name) {
  RETURN_IF(is_wrong(function) || is_wrong(name), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(!is_handle(MODULES, module), CUDA_ERROR_INVALID_HANDLE);
  LOCKED;
  struct function *found = module->functions;
  while (found != NULL && strcmp(found->name, name) != 0) {
    found = found->next;
  }
  *function = found == NULL ? make_handle(FUNCTIONS, sizeof *found + strlen(name) + 1) : found;
  RETURN_IF(*function == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  if (found == NULL) {
    int capability = compiled_for();
    **function = (struct function){
        .module = module, .next = module->functions,
        .attributes = {[MAX_THREADS] = 1024, [REGISTERS] = 32, [PTX] = capability, [BINARY] = capability,
                       [MAX_DYNAMIC_SHARED] = 48 << 10, [CARVEOUT] = -1}};
    strcpy((*function)->name, name);
    module->functions = *function;
  }
  return CUDA_SUCCESS;
}
API CUresult cuModuleGetFunctionCount(unsigned *count, struct module *module) {
  RETURN_IF(is_wrong(count), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(!is_handle(MODULES, module), CUDA_ERROR_INVALID_HANDLE);
  *count = 0;
  for (struct function *at = module->functions; at != NULL; at = at->next) {
    ++*count;
  }
  return CUDA_SUCCESS;
}
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, struct module *module, const char *name) {
  RETURN_IF(is_wrong(name), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(!is_handle(MODULES, module), CUDA_ERROR_INVALID_HANDLE);
  LOCKED;
  struct global *found = module->globals;
  while (found != NULL && strcmp(found->name, name) != 0) {
    found = found->next;
  }
  if (found == NULL && (found = calloc(1, sizeof *found)) != NULL) {
    found->name = strdup(name);
    found->address = (CUdeviceptr)reserve_addresses(CHUNK, CHUNK, 0);
    add_range(found->address, GLOBAL_SIZE, DEVICE, current_device());
    found->next = module->globals;
    module->globals = found;
  }
  RETURN_IF(found == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  TELL(address, found->address);
  TELL(size, GLOBAL_SIZE);
  return CUDA_SUCCESS;
}

#define OF(kind, handle, name, parameters, where, answer) \
  ANSWER_OF(is_handle(kind, handle), CUDA_ERROR_INVALID_HANDLE, name, parameters, where, answer)
OF(MODULES, library, cuLibraryGetModule, (struct module **module, struct module *library), module, library)
OF(FUNCTIONS, kernel, cuKernelGetFunction, (struct function **function, struct function *kernel), function, kernel)
OF(FUNCTIONS, kernel, cuKernelGetLibrary, (struct module **module, struct function *kernel), module, kernel->module)
OF(FUNCTIONS, function, cuFuncGetName, (const char **name, struct function *function), name, function->name)
ALSO(cuFuncGetModule, cuKernelGetLibrary)
API CUresult cuFuncGetAttribute(int *value, int number, struct function *function) {
  RETURN_IF(!is_handle(FUNCTIONS, function), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(is_wrong(value) || number < 0 || number >= ATTRIBUTES, CUDA_ERROR_INVALID_VALUE);
  *value = function->attributes[number];
  return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(struct function *function, int number, int value) {
  RETURN_IF(!is_handle(FUNCTIONS, function), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(number < 0 || number >= ATTRIBUTES, CUDA_ERROR_INVALID_VALUE);
  function->attributes[number] = value;
  return CUDA_SUCCESS;
}
API CUresult cuKernelSetAttribute(int number, int value, struct function *kernel, CUdevice device UNUSED) {
  return cuFuncSetAttribute(kernel, number, value);
}
ANSWER(cuFuncIsLoaded, (int *state, struct function *function UNUSED), state, 1)
/* A launch is nothing but a node of the graph that is captured. */
API CUresult cuLaunchKernel(struct function *function UNUSED, unsigned gx UNUSED, unsigned gy UNUSED,
                            unsigned gz UNUSED, unsigned bx UNUSED, unsigned by UNUSED, unsigned bz UNUSED,
                            unsigned shared UNUSED, struct stream *stream) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  add_launch(stream);
  return CUDA_SUCCESS;
}
ALSO(cuLaunchCooperativeKernel, cuLaunchKernel)

/* CUlaunchConfig begins with the grid, the block and the shared memory, then the stream. */
struct launch {
  unsigned grid[3], block[3], shared;
  struct stream *stream;
};

API CUresult cuLaunchKernelEx(const struct launch *launch, struct function *function UNUSED, void **parameters UNUSED,
                              void **extra UNUSED) {
  RETURN_IF(is_wrong(launch), CUDA_ERROR_INVALID_VALUE);
  return cuLaunchKernel(NULL, 0, 0, 0, 0, 0, 0, 0, launch->stream);
}

/* How many blocks one multiprocessor holds, by threads, shared memory and registers. */
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, struct function *function, int threads,
                                                                  size_t dynamic, unsigned flags UNUSED) {
  RETURN_IF(!is_handle(FUNCTIONS, function), CUDA_ERROR_INVALID_HANDLE);
  bool is_usual = threads > 0 && threads <= 1 << 20 && dynamic <= 1 << 30;
  RETURN_IF(is_wrong(blocks) || !is_usual, CUDA_ERROR_INVALID_VALUE);
  const struct card *card = the_card();
  int warps = (threads + 31) / 32;
  int most = card->threads / (32 * warps);
  int reserved = card->major >= 8 ? 1024 : 0;
  int shared = (int)dynamic + function->attributes[SHARED] + reserved;
  int by_shared = shared > 0 ? card->shared / shared : card->blocks;
  int by_registers = 65536 / (function->attributes[REGISTERS] * 32 * warps);
  most = most < card->blocks ? most : card->blocks;
  most = by_shared < most ? by_shared : most;
  *blocks = by_registers < most ? by_registers : most;
  return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct function *function, int threads,
                                                         size_t dynamic) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic, 0);
}
ANSWER(cuOccupancyAvailableDynamicSMemPerBlock, (size_t *size, struct function *function UNUSED, int blocks,
       int threads UNUSED), size, blocks > 0 ? (size_t)(the_card()->shared / blocks) : 0)
ANSWER(cuOccupancyMaxActiveClusters, (int *clusters, struct function *function UNUSED,
       const struct launch *launch UNUSED), clusters, the_card()->multiprocessors / 8)
ANSWER(cuOccupancyMaxPotentialClusterSize, (int *size, struct function *function UNUSED,
       const struct launch *launch UNUSED), size, 8)
API CUresult cuOccupancyMaxPotentialBlockSize(int *least, int *threads, struct function *function, void *shared UNUSED,
                                              size_t dynamic, int limit) {
  RETURN_IF(!is_handle(FUNCTIONS, function), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(is_wrong(least) || is_wrong(threads), CUDA_ERROR_INVALID_VALUE);
  int blocks = 0;
  *threads = limit > 0 && limit < 1024 ? limit : 1024;
  CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, function, *threads, dynamic, 0);
  *least = blocks * the_card()->multiprocessors;
  return result;
}

/* CUtensorMap: 128 bytes that only a kernel reads. */
API CUresult cuTensorMapEncodeTiled(void *map) {
  RETURN_IF(is_wrong(map), CUDA_ERROR_INVALID_VALUE);
  memset(map, 0, 128);
  return CUDA_SUCCESS;
}
ALSO(cuTensorMapEncodeIm2col, cuTensorMapEncodeTiled)

/* The linker: what goes in is not read, and what comes out is an image that nobody reads. */
API CUresult cuLinkCreate_v2(unsigned count UNUSED, void *options UNUSED, void **values UNUSED, struct module **state) {
  return cuModuleLoad(state);
}
API CUresult cuLinkComplete(struct module *state, const void **image, size_t *size) {
  RETURN_IF(!is_handle(MODULES, state), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(is_wrong(image) || is_wrong(size), CUDA_ERROR_INVALID_VALUE);
  *image = state;
  *size = sizeof *state;
  return CUDA_SUCCESS;
}
ENDED(cuLinkDestroy, struct module, MODULES, CUDA_ERROR_INVALID_HANDLE)
