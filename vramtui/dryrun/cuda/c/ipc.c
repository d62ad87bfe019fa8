/* Memory and events that one process opens in another (cuIpc… of cuda.h): a handle says whose they are. What is
 * opened takes nothing more of the card, as its owner holds it, and what its owner wrote there reads as zeros. */
#include "driver.h"

/* CUipcMemHandle and CUipcEventHandle: 64 bytes, which travel by value. */
struct handle {
  CUdeviceptr start;
  size_t size;
  int owner; /* its process */
  int card; /* of the machine */
  unsigned char unused[40];
};

struct opened {
  CUdeviceptr there, here;
  int owner;
  size_t size;
  int users;
  struct opened *next;
};

static struct opened *first;

API CUresult cuIpcGetMemHandle(struct handle *handle, CUdeviceptr address) {
  RETURN_IF(is_wrong(handle), CUDA_ERROR_INVALID_VALUE);
  LOCKED;
  struct range *range = range_of(address);
  bool is_own = range != NULL && range->kind == DEVICE && range->pool == NULL; /* of cuMemAlloc */
  RETURN_IF(!is_own, CUDA_ERROR_INVALID_VALUE);
  *handle = (struct handle){range->start, range->size, (int)getpid(), number_of_card(range->device), {0}};
  return CUDA_SUCCESS;
}

/* Where a handle is opened: one that is open already is that once more. Under the lock. */
static struct opened *opened_at(const struct handle *handle) {
  struct opened *at = first;
  while (at != NULL && (at->there != handle->start || at->owner != handle->owner)) {
    at = at->next;
  }
  RETURN_IF(at != NULL, at);
  at = calloc(1, sizeof *at);
  void *start = at == NULL ? NULL : reserve_addresses(handle->size, CHUNK, 0);
  CUdevice device = device_of_card(handle->card) < 0 ? current_device() : device_of_card(handle->card);
  if (start == NULL || add_range((uint64_t)start, handle->size, OPENED, device) == NULL) {
    free(at);
    return NULL;
  }
  *at = (struct opened){handle->start, (CUdeviceptr)start, handle->owner, handle->size, 0, first};
  return first = at;
}
API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, struct handle handle, unsigned flags UNUSED) {
  RETURN_IF(is_wrong(address), CUDA_ERROR_INVALID_VALUE);
  bool is_own = handle.owner == getpid(); /* which a process may not open */
  RETURN_IF(current_context() == NULL || is_own, CUDA_ERROR_INVALID_CONTEXT);
  RETURN_IF(handle.size == 0 || handle.owner <= 0 || kill(handle.owner, 0) != 0, CUDA_ERROR_INVALID_VALUE);
  LOCKED;
  struct opened *opened = opened_at(&handle);
  RETURN_IF(opened == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  opened->users++;
  *address = opened->here;
  return CUDA_SUCCESS;
}
ALSO(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2)
API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  LOCKED;
  struct opened **place = &first, *at;
  while (*place != NULL && (*place)->here != address) {
    place = &(*place)->next;
  }
  at = *place;
  RETURN_IF(at == NULL, CUDA_ERROR_INVALID_VALUE);
  if (--at->users == 0) {
    *place = at->next;
    remove_range(range_of(address));
    munmap((void *)address, at->size);
    free(at);
  }
  return CUDA_SUCCESS;
}

/* All work is done when it is given, so an event of another process is one that has come. */
API CUresult cuIpcGetEventHandle(struct handle *handle, struct event *event) {
  RETURN_IF(is_wrong(handle), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(!is_handle(EVENTS, event), CUDA_ERROR_INVALID_HANDLE);
  *handle = (struct handle){.start = (CUdeviceptr)event, .owner = (int)getpid()};
  return CUDA_SUCCESS;
}
API CUresult cuIpcOpenEventHandle(struct event **event, struct handle handle UNUSED) { return cuEventCreate(event, 0); }
API CUresult cudaIpcOpenMemHandle(CUdeviceptr *address, struct handle handle, unsigned flags) {
  RETURN_IF(runtime_context() == NULL, keep_error(without_runtime()));
  return keep_error(cuIpcOpenMemHandle_v2(address, handle, flags));
}
API CUresult cudaIpcOpenEventHandle(struct event **event, struct handle handle) {
  return keep_error(cuIpcOpenEventHandle(event, handle));
}
