/* Stream-ordered memory pools: what is freed goes back at once, so a pool holds what is in use. */
#include "driver.h"

struct pool {
  CUdevice device;
  uint64_t threshold, used, most;
  int reuse[3];
};

static struct pool defaults[MOST_DEVICES];
static struct pool *chosen[MOST_DEVICES];

static struct pool *default_of(CUdevice device) {
  defaults[device].device = device;
  return &defaults[device];
}
static struct pool *pool_of(CUdevice device) { return chosen[device] == NULL ? default_of(device) : chosen[device]; }

static bool is_pool(const struct pool *pool) {
  return (pool >= defaults && pool < defaults + MOST_DEVICES) || is_handle(POOLS, pool);
}

#define OF_DEVICE(name, parameters, where, answer) \
  ANSWER_OF(context_of(device) != NULL, CUDA_ERROR_INVALID_DEVICE, name, parameters, where, answer)
OF_DEVICE(cuDeviceGetDefaultMemPool, (struct pool **pool, CUdevice device), pool, default_of(device))
OF_DEVICE(cuDeviceGetMemPool, (struct pool **pool, CUdevice device), pool, pool_of(device))
API CUresult cuDeviceSetMemPool(CUdevice device, struct pool *pool) {
  RETURN_IF(!is_pool(pool), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(context_of(device) == NULL, CUDA_ERROR_INVALID_DEVICE);
  chosen[device] = pool;
  return CUDA_SUCCESS;
}

/* CUmemPoolProps: allocation type, handle types, then the location's type and id. */
API CUresult cuMemPoolCreate(struct pool **pool, const int *properties) {
  RETURN_IF(is_wrong(pool) || is_wrong(properties), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(context_of(properties[3]) == NULL, CUDA_ERROR_INVALID_DEVICE);
  *pool = make_handle(POOLS, sizeof **pool);
  RETURN_IF(*pool == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  (*pool)->device = properties[3];
  return CUDA_SUCCESS;
}
API CUresult cuMemPoolDestroy(struct pool *pool) {
  RETURN_IF(!is_pool(pool), CUDA_ERROR_INVALID_VALUE);
  for (int device = 0; device < MOST_DEVICES; device++) {
    chosen[device] = chosen[device] == pool ? NULL : chosen[device];
  }
  return CUDA_SUCCESS; /* what is still in use keeps it */
}
ANSWER(cuMemPoolGetAccess, (int *flags, struct pool *pool UNUSED, void *location UNUSED), flags, 3)
/* CU_MEMPOOL_ATTR_…: 1 to 3 how freed memory is reused, 4 release threshold, 5 to 8 reserved and used, now and most. */
API CUresult cuMemPoolGetAttribute(struct pool *pool, int number, void *value) {
  RETURN_IF(!is_pool(pool) || is_wrong(value), CUDA_ERROR_INVALID_VALUE);
  if (number >= 1 && number <= 3) {
    *(int *)value = 1 - pool->reuse[number - 1];
  } else if (number >= 4 && number <= 8) {
    bool most = number == 6 || number == 8;
    *(uint64_t *)value = number == 4 ? pool->threshold : most ? pool->most : pool->used;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
API CUresult cuMemPoolSetAttribute(struct pool *pool, int number, const void *value) {
  RETURN_IF(!is_pool(pool) || is_wrong(value), CUDA_ERROR_INVALID_VALUE);
  if (number >= 1 && number <= 3) {
    pool->reuse[number - 1] = *(const int *)value == 0;
  } else if (number == 4) {
    pool->threshold = *(const uint64_t *)value;
  } else if (number == 6 || number == 8) {
    pool->most = pool->used;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, struct pool *pool, struct stream *stream) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(!is_pool(pool) || is_wrong(address), CUDA_ERROR_INVALID_VALUE);
  add_graph_node(stream, 10);
  LOCKED;
  CUresult result = take_memory(pool->device, size, pool, address);
  if (result == CUDA_SUCCESS) {
    pool->used += range_of(*address)->charged;
    pool->most = pool->used > pool->most ? pool->used : pool->most;
  }
  return result;
}
API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, struct stream *stream) {
  struct context *context = current_context();
  RETURN_IF(context == NULL, without_context());
  return cuMemAllocFromPoolAsync(address, size, pool_of(context->device), stream);
}
API CUresult cuMemFreeAsync(CUdeviceptr address, struct stream *stream) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  add_graph_node(stream, 11);
  LOCKED;
  struct range *range = range_of(address);
  struct pool *pool = range == NULL ? NULL : range->pool;
  size_t size = range == NULL ? 0 : range->charged;
  CUresult result = give_memory(address);
  if (result == CUDA_SUCCESS && is_pool(pool)) {
    pool->used -= size;
  }
  return result;
}
