/* Virtual memory management, as expandable segments use it. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"

/* CUmemAllocationProp as far as it is looked at. */
struct location {
  int type, id; /* 1 a device */
};
struct property {
  int type, handle_types;
  struct location location;
  void *security;
  unsigned char flags[32];
};

struct piece {
  size_t size;
  struct property property;
  int owners; /* its handle and its mappings */
};

ANSWER(cuMemGetAllocationGranularity, (size_t *size, const struct property *property UNUSED, int option UNUSED),
       size, CHUNK)
API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                                 unsigned long long flags UNUSED) {
  RETURN_IF(size == 0 || size % CHUNK != 0, CUDA_ERROR_INVALID_VALUE);
  void *start = reserve_addresses(size, alignment, wanted);
  RETURN_IF(start == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  lock_memory();
  struct range *range = add_range((uint64_t)start, size, RESERVED, 0);
  unlock_memory();
  *address = (CUdeviceptr)start;
  return range == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  lock_memory();
  struct range *range = range_of(address);
  if (range != NULL && range->kind == RESERVED && range->start == address && range->size == size) {
    munmap((void *)address, size);
    remove_range(range);
    result = CUDA_SUCCESS;
  }
  unlock_memory();
  return result;
}

API CUresult cuMemCreate(struct piece **handle, size_t size, const struct property *property,
                         unsigned long long flags UNUSED) {
  bool on_card = property->location.type == 1;
  if (size == 0 || size % CHUNK != 0 || (on_card && context_of(property->location.id) == NULL)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  lock_memory();
  bool room = !on_card || charge(property->location.id, size);
  unlock_memory();
  struct piece *piece = room ? malloc(sizeof *piece) : NULL;
  RETURN_IF(piece == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  *piece = (struct piece){.size = size, .property = *property, .owners = 1};
  *handle = piece;
  return CUDA_SUCCESS;
}

/* The memory goes back with the last of its owners. Under the lock. */
static void disown(struct piece *piece) {
  if (--piece->owners > 0) {
    return;
  }
  if (piece->property.location.type == 1) {
    discharge(piece->property.location.id, piece->size);
  }
  free(piece);
}

API CUresult cuMemRelease(struct piece *piece) {
  lock_memory();
  disown(piece);
  unlock_memory();
  return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset UNUSED, struct piece *piece,
                      unsigned long long flags UNUSED) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  lock_memory();
  struct range *whole = range_of(address);
  if (whole != NULL && whole->kind == RESERVED && address + size <= whole->start + whole->size) {
    struct range *range = add_range(address, size, DEVICE, piece->property.location.id);
    if (range != NULL) {
      range->pool = piece;
      piece->owners++;
      result = CUDA_SUCCESS;
    }
  }
  unlock_memory();
  return result;
}

API CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  lock_memory();
  for (CUdeviceptr at = address; at < address + size;) {
    struct range *range = range_of(at);
    if (range == NULL || range->kind != DEVICE) {
      unlock_memory();
      return CUDA_ERROR_INVALID_VALUE;
    }
    at = range->start + range->size;
    forget(range);
    disown(range->pool);
    remove_range(range);
  }
  unlock_memory();
  return CUDA_SUCCESS;
}

ANSWER(cuMemGetAccess, (unsigned long long *flags, const struct location *location UNUSED,
       CUdeviceptr address UNUSED), flags, 3)
ANSWER(cuMemGetAllocationPropertiesFromHandle, (struct property *property, const struct piece *piece), property,
       piece->property)
API CUresult cuMemRetainAllocationHandle(struct piece **handle, void *address) {
  lock_memory();
  struct range *range = range_of((uint64_t)address);
  bool mapped = range != NULL && range->kind == DEVICE && range->charged == 0 && range->pool != NULL;
  if (mapped) {
    *handle = range->pool;
    (*handle)->owners++;
  }
  unlock_memory();
  return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
