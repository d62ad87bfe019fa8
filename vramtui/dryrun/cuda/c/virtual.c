/* Virtual memory management, as expandable segments use it. */
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
  bool is_charged;
};

ANSWER(cuMemGetAllocationGranularity, (size_t *size, const struct property *property UNUSED, int option UNUSED),
       size, CHUNK)
API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                                 unsigned long long flags UNUSED) {
  RETURN_IF(is_wrong(address) || size == 0 || size % CHUNK != 0, CUDA_ERROR_INVALID_VALUE);
  void *start = reserve_addresses(size, alignment, wanted);
  RETURN_IF(start == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  LOCKED;
  *address = (CUdeviceptr)start;
  return add_range(*address, size, RESERVED, 0) == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
API CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  LOCKED;
  struct range *range = range_of(address);
  bool is_whole = range != NULL && range->kind == RESERVED && range->start == address && range->size == size;
  RETURN_IF(!is_whole, CUDA_ERROR_INVALID_VALUE);
  munmap((void *)address, size);
  remove_range(range);
  return CUDA_SUCCESS;
}

static CUresult make_piece(struct piece **handle, struct piece what) {
  RETURN_IF(is_wrong(handle), CUDA_ERROR_INVALID_VALUE);
  *handle = make_handle(PIECES, sizeof **handle);
  RETURN_IF(*handle == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  **handle = what;
  return CUDA_SUCCESS;
}
API CUresult cuMemCreate(struct piece **handle, size_t size, const struct property *property,
                         unsigned long long flags UNUSED) {
  RETURN_IF(is_wrong(handle) || is_wrong(property), CUDA_ERROR_INVALID_VALUE);
  bool on_card = property->location.type == 1;
  bool has_device = !on_card || context_of(property->location.id) != NULL;
  RETURN_IF(size == 0 || size % CHUNK != 0 || !has_device, CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(on_card && !charge(property->location.id, size), CUDA_ERROR_OUT_OF_MEMORY);
  return make_piece(handle, (struct piece){.size = size, .property = *property, .owners = 1, .is_charged = on_card});
}

/* For another process: a file whose content is the piece, of which whoever imports it takes nothing more of the card. */
API CUresult cuMemExportToShareableHandle(int *shared, const struct piece *piece, int type, uint64_t flags UNUSED) {
  RETURN_IF(!is_handle(PIECES, piece) || is_wrong(shared), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(type != 1, CUDA_ERROR_NOT_SUPPORTED); /* POSIX_FILE_DESCRIPTOR */
  struct piece copied = *piece;
  copied.is_charged = false;
  copied.owners = 1;
  *shared = (int)syscall(SYS_memfd_create, "vramtui-piece", 1u); /* close on exec; glibc 2.17 has no name for it */
  return write(*shared, &copied, sizeof copied) == (ssize_t)sizeof copied ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuMemImportFromShareableHandle(struct piece **handle, uintptr_t shared, int type) {
  struct piece copied;
  bool is_piece = type == 1 && pread((int)shared, &copied, sizeof copied, 0) == (ssize_t)sizeof copied &&
                  copied.size % CHUNK == 0 && copied.owners == 1 && !copied.is_charged;
  return is_piece ? make_piece(handle, copied) : CUDA_ERROR_INVALID_VALUE;
}

/* CUmulticastObjectProp: an object of several cards takes none of them; what is bound to it was taken before. */
struct multicast {
  unsigned devices;
  size_t size;
};
ANSWER(cuMulticastGetGranularity, (size_t *size, const struct multicast *what UNUSED, int is_recommended), size,
       is_recommended ? 512 * MIB : CHUNK)
API CUresult cuMulticastCreate(struct piece **handle, const struct multicast *what) {
  RETURN_IF(is_wrong(what), CUDA_ERROR_INVALID_VALUE);
  return make_piece(handle, (struct piece){.size = what->size, .owners = 1});
}
NOTHING(cuMulticastAddDevice) NOTHING(cuMulticastBindMem) NOTHING(cuMulticastBindAddr) NOTHING(cuMulticastUnbind)

/* The memory goes back with the last of its owners. Under the lock. */
static void disown(struct piece *piece) {
  if (--piece->owners == 0) {
    discharge(piece->property.location.id, piece->is_charged ? piece->size : 0);
    end_handle(PIECES, piece);
  }
}

static bool is_mapping(const struct range *range) {
  return range != NULL && range->kind == DEVICE && is_handle(PIECES, range->pool);
}
API CUresult cuMemRelease(struct piece *piece) {
  LOCKED;
  RETURN_IF(!is_handle(PIECES, piece), CUDA_ERROR_INVALID_VALUE);
  disown(piece);
  return CUDA_SUCCESS;
}
API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset UNUSED, struct piece *piece,
                      unsigned long long flags UNUSED) {
  LOCKED;
  struct range *whole = range_of(address);
  bool is_reserved = whole != NULL && whole->kind == RESERVED && size <= whole->start + whole->size - address;
  RETURN_IF(!is_reserved || !is_handle(PIECES, piece) || size == 0, CUDA_ERROR_INVALID_VALUE);
  struct range *range = add_range(address, size, DEVICE, piece->property.location.id);
  RETURN_IF(range == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  range->pool = piece;
  piece->owners++;
  return CUDA_SUCCESS;
}
API CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  RETURN_IF(size == 0 || address + size < address, CUDA_ERROR_INVALID_VALUE);
  LOCKED;
  for (CUdeviceptr at = address; at < address + size;) {
    struct range *range = range_of(at);
    RETURN_IF(!is_mapping(range), CUDA_ERROR_INVALID_VALUE);
    at = range->start + range->size;
    forget(range);
    disown(range->pool);
    remove_range(range);
  }
  return CUDA_SUCCESS;
}
ANSWER(cuMemGetAccess, (unsigned long long *flags, const struct location *location UNUSED,
       CUdeviceptr address UNUSED), flags, 3)
ANSWER_OF(is_handle(PIECES, piece), CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle,
          (struct property *property, const struct piece *piece), property, piece->property)
API CUresult cuMemRetainAllocationHandle(struct piece **handle, void *address) {
  RETURN_IF(is_wrong(handle), CUDA_ERROR_INVALID_VALUE);
  LOCKED;
  struct range *range = range_of((uint64_t)address);
  RETURN_IF(!is_mapping(range), CUDA_ERROR_INVALID_VALUE);
  *handle = range->pool;
  (*handle)->owners++;
  return CUDA_SUCCESS;
}
