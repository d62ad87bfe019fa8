/* The runtime library's side of kernels: what a program registers when it is loaded (crt/host_runtime.h's documented
 * hooks of nvcc's output), attributes, launches; and the properties of a device. */
#include "driver.h"

static struct module *whole; /* every registered kernel is in one module */

static void *whole_module(void) {
  if (whole == NULL) {
    cuModuleLoad(&whole);
  }
  return whole;
}

/* The kernel behind a host's address; a handle of our own, as cudaLibraryGetKernel gives it, is the kernel itself. */
static struct function *function_of(const void *host) {
  LOCKED;
  struct entry *entry = entry_of(host);
  RETURN_IF(entry == NULL || (entry->kind != HOST_NAMES && entry->kind != HOST_KERNELS), (struct function *)host);
  const void *value = entry->value; /* what is made below may move the table */
  RETURN_IF(entry->kind == HOST_KERNELS, (struct function *)value);
  struct function *found = NULL;
  if (cuModuleGetFunction(&found, whole_module(), value) == CUDA_SUCCESS) {
    enter(HOST_KERNELS, host, found);
  }
  return found;
}
API void **__cudaRegisterFatBinary(void *image) {
  void **handle = malloc(sizeof *handle);
  TELL(handle, image);
  return handle;
}
API void __cudaRegisterFatBinaryEnd(void **handle UNUSED) {}
API void __cudaUnregisterFatBinary(void **handle UNUSED) {}
API char __cudaInitModule(void **handle UNUSED) { return 1; }
API void __cudaRegisterFunction(void **handle UNUSED, const void *host, char *device UNUSED, const char *name) {
  LOCKED;
  enter(HOST_NAMES, host, name);
}
ALSO(__cudaRegisterVar, __cudaRegisterFunction) ALSO(__cudaRegisterManagedVar, __cudaRegisterFunction)

struct size3 {
  unsigned x, y, z;
};

struct configuration { /* cudaLaunchConfig_t as far as it is read */
  struct size3 grid, block;
  size_t shared;
  struct stream *stream;
};
static __thread struct configuration pushed[16]; /* what `<<<…>>>` says, from its place to the launch */
static __thread int pushed_count;

API unsigned __cudaPushCallConfiguration(struct size3 grid, struct size3 block, size_t shared, struct stream *stream) {
  RETURN_IF(pushed_count == 16, 1);
  pushed[pushed_count++] = (struct configuration){grid, block, shared, stream};
  return 0;
}
API CUresult __cudaPopCallConfiguration(struct size3 *grid, struct size3 *block, size_t *shared,
                                        struct stream **stream) {
  RETURN_IF(is_wrong(grid) || is_wrong(block) || is_wrong(shared) || is_wrong(stream), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(pushed_count == 0, CUDA_ERROR_INVALID_VALUE);
  struct configuration last = pushed[--pushed_count];
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *stream = last.stream;
  return CUDA_SUCCESS;
}
ANSWER(__cudaGetKernel, (struct function **kernel, const void *host), kernel, function_of(host))
API CUresult cudaLaunchKernel(const void *kernel UNUSED, struct size3 grid UNUSED, struct size3 block UNUSED,
                              void **arguments UNUSED, size_t shared UNUSED, struct stream *stream) {
  RETURN_IF(!is_stream(stream), keep_error(CUDA_ERROR_INVALID_HANDLE));
  RETURN_IF(runtime_context() == NULL, keep_error(without_runtime()));
  add_launch(stream);
  return CUDA_SUCCESS;
}
ALSO(__cudaLaunchKernel, cudaLaunchKernel) ALSO(cudaLaunchCooperativeKernel, cudaLaunchKernel)

API CUresult cudaLaunchKernelExC(const struct configuration *config) {
  RETURN_IF(is_wrong(config), keep_error(CUDA_ERROR_INVALID_VALUE));
  return cudaLaunchKernel(NULL, config->grid, config->block, NULL, config->shared, config->stream);
}

/* cudaFuncAttributes: the sizes of shared, constant and local memory, then numbers. */
struct function_attributes {
  size_t sizes[3];
  int numbers[7], rest[22];
};

API CUresult cudaFuncGetAttributes(struct function_attributes *answer, const void *kernel) {
  RETURN_IF(is_wrong(answer), keep_error(CUDA_ERROR_INVALID_VALUE));
  static const int NUMBERS[] = {0, 4, 5, 6, 7, 8, 9}; /* threads, registers, PTX, binary, cache, dynamic, carveout */
  struct function *function = function_of(kernel);
  *answer = (struct function_attributes){0};
  for (int at = 0, value; at < 3 && cuFuncGetAttribute(&value, at + 1, function) == CUDA_SUCCESS; at++) {
    answer->sizes[at] = (size_t)value;
  }
  for (int at = 0; at < 7; at++) {
    cuFuncGetAttribute(&answer->numbers[at], NUMBERS[at], function);
  }
  return CUDA_SUCCESS;
}
API CUresult cudaFuncSetAttribute(const void *kernel, int number, int value) {
  return keep_error(cuFuncSetAttribute(function_of(kernel), number, value));
}
API CUresult cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads,
                                                           size_t shared) {
  return keep_error(
      cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function_of(kernel), threads, shared, 0));
}
ALSO(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cudaOccupancyMaxActiveBlocksPerMultiprocessor)

static CUresult symbol_address(CUdeviceptr *address, const void *host) {
  LOCKED;
  struct entry *entry = entry_of(host);
  RETURN_IF(entry == NULL || entry->kind != HOST_NAMES, CUDA_ERROR_INVALID_VALUE);
  const char *name = entry->value;
  return cuModuleGetGlobal_v2(address, NULL, whole_module(), name);
}
API CUresult cudaGetSymbolAddress(CUdeviceptr *address, const void *host) {
  return runtime_context() == NULL ? keep_error(without_runtime()) : keep_error(symbol_address(address, host));
}
API CUresult cudaMemcpyToSymbol(const void *host, CUdeviceptr from, size_t size, size_t offset, int kind UNUSED) {
  CUdeviceptr address;
  CUresult result = cudaGetSymbolAddress(&address, host);
  return result == CUDA_SUCCESS ? copy(address + offset, from, size) : result;
}

/* cudaDeviceProp of CUDA 13 (driver_types.h): a name of 256 bytes, 16 of the UUID, the memory at 288, and what attributes
 * say, each at its place and of so many bytes; its sizes of textures and surfaces stay zero. */
#define PROPERTIES_SIZE 1008
static const struct {
  int place, size, attribute;
} PROPERTIES[] = {
    {296, 8, 8},   {304, 4, 12},  {308, 4, 10},  {312, 8, 11},  {320, 4, 1},   {324, 4, 2},   {328, 4, 3},   {332, 4, 4},
    {336, 4, 5},   {340, 4, 6},   {344, 4, 7},   {352, 8, 9},   {360, 4, 75},  {364, 4, 76},  {368, 8, 14},  {376, 8, 51},
    {384, 4, 16},  {392, 4, 19},  {552, 8, 30},  {560, 4, 31},  {568, 4, 33},  {584, 4, 40},  {588, 4, 41},  {592, 4, 37},
    {596, 4, 38},  {600, 4, 108}, {604, 4, 39},  {608, 4, 78},  {612, 4, 79},  {616, 4, 80},  {624, 8, 81},  {632, 4, 82},
    {636, 4, 83},  {656, 4, 89},  {660, 4, 90},  {664, 4, 91},  {668, 4, 95},  {672, 8, 97},  {688, 4, 106}, {692, 4, 109},
    {696, 8, 111}, {704, 4, 99},  {720, 4, 115}, {736, 4, 119}, {744, 4, 125}, {748, 4, 120}, {752, 4, 129}, {760, 4, 131},
    {768, 4, 134}};

API CUresult cudaGetDeviceProperties(char *answer, CUdevice device) {
  RETURN_IF(is_wrong(answer), keep_error(CUDA_ERROR_INVALID_VALUE));
  RETURN_IF(context_of(device) == NULL, keep_error(CUDA_ERROR_INVALID_DEVICE));
  memset(answer, 0, PROPERTIES_SIZE);
  cuDeviceGetName(answer, 256, device);
  cuDeviceGetUuid_v2((unsigned char *)answer + 256, device);
  memcpy(answer + 288, &the_card()->memory, sizeof the_card()->memory);
  for (size_t at = 0; at < sizeof PROPERTIES / sizeof PROPERTIES[0]; at++) {
    int value = 0;
    cuDeviceGetAttribute(&value, PROPERTIES[at].attribute, device);
    memcpy(answer + PROPERTIES[at].place, &(int64_t){value}, (size_t)PROPERTIES[at].size);
  }
  return CUDA_SUCCESS;
}
/* As CUDA 12 has it: with a clock's rate and five numbers more, which stay zero. */
API CUresult cudaGetDeviceProperties_v2(char *answer, CUdevice device) {
  RETURN_IF(is_wrong(answer), keep_error(CUDA_ERROR_INVALID_VALUE));
  static const struct { unsigned from, to, size; } PARTS[] = {
      {0, 0, 384}, {384, 388, 4}, {388, 396, 8}, {396, 408, 156}, {552, 568, 40}, {592, 612, 28}, {624, 640, 28},
      {652, 672, 20}, {672, 696, 84}};
  char newer[PROPERTIES_SIZE] = {0};
  CUresult result = cudaGetDeviceProperties(newer, device);
  memset(answer, 0, 1032);
  for (size_t at = 0; at < sizeof PARTS / sizeof PARTS[0]; at++) {
    memcpy(answer + PARTS[at].to, newer + PARTS[at].from, PARTS[at].size);
  }
  return result;
}
