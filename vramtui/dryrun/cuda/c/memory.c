/* A card's memory, the host's, and what is copied between them. */
#include "driver.h"

#define SMALL_COPY 65536
#define MOST_KEPT ((size_t)512 << 20) /* bytes of the host's memory that copies may take */

static struct {
  uint64_t low, high;
  size_t used;
} areas[MOST_DEVICES];
static size_t kept;

bool charge_to(CUdevice device, size_t *held, size_t bytes, bool is_forced) {
  RETURN_IF(is_child_of_user(), false);
  LOCKED;
  int waiting = keep_others_waiting();
  uint64_t others = (uint64_t)used_on(number_of_card(device), (int)getpid()), whole = the_card()->memory;
  uint64_t taken = areas[device].used + context_bytes(device) + others;
  bool has_room = is_forced || (taken <= whole && bytes <= whole - taken);
  if (has_room) {
    *held += bytes;
    report_used(device, (int64_t)bytes, (int64_t)context_bytes(device), (int64_t)others);
  } else {
    report_refused(device, bytes);
  }
  let_others(waiting);
  return has_room;
}

bool charge(CUdevice device, size_t bytes) { return charge_to(device, &areas[device].used, bytes, false); }

void discharge(CUdevice device, size_t bytes) {
  LOCKED;
  if (!is_child_of_user()) {
    areas[device].used -= bytes;
    report_used(device, -(int64_t)bytes, 0, 0);
  }
}

/* In a new process: nothing of the card is its own. */
void forget_memory(void) {
  for (CUdevice device = 0; device < MOST_DEVICES; device++) {
    areas[device].used = 0;
  }
}

static uint64_t free_address(CUdevice device, size_t size) {
  if (areas[device].low == 0) {
    size_t whole = 4 * ((the_card()->memory + CHUNK - 1) / CHUNK * CHUNK);
    areas[device].low = (uint64_t)reserve_addresses(whole, CHUNK, 0);
    RETURN_IF(areas[device].low == 0, 0);
    areas[device].high = areas[device].low + whole;
  }
  return highest_gap(areas[device].low, areas[device].high, size);
}

CUresult take_memory(CUdevice device, size_t size, void *pool, CUdeviceptr *address) {
  RETURN_IF(size == 0, CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(size > the_card()->memory && !report_refused(device, size), CUDA_ERROR_OUT_OF_MEMORY);
  size_t charged = (size + CHUNK - 1) / CHUNK * CHUNK;
  LOCKED;
  RETURN_IF(!charge(device, charged), CUDA_ERROR_OUT_OF_MEMORY);
  uint64_t start = free_address(device, charged);
  struct range *range = start == 0 ? NULL : add_range(start, size, DEVICE, device);
  if (range == NULL) {
    discharge(device, charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  range->charged = charged;
  range->pool = pool;
  *address = start;
  return CUDA_SUCCESS;
}

/* The single values that the host copied, by address: a single value is known only where the host wrote that one alone;
 * anything else may be a result. */
#define MOST_VALUES 4096
static struct value {
  CUdeviceptr address;
  size_t size;
} values[MOST_VALUES];

/* What the host copied there is no more: it reads as zeros. */
static void drop(uint64_t start, size_t size) {
  uint64_t first = (start + 4095) / 4096 * 4096, last = (start + size) / 4096 * 4096;
  memset((void *)start, 0, first < last ? first - start : size);
  if (first < last) {
    madvise((void *)first, last - first, MADV_DONTNEED);
    memset((void *)last, 0, start + size - last);
  }
  for (size_t at = 0; at < MOST_VALUES; at++) {
    values[at].size = values[at].address - start < size ? 0 : values[at].size;
  }
}

/* What was kept of copies to a range goes with it: the next who gets these addresses reads zeros. */
void forget(struct range *range) {
  if (range->kept) {
    drop(range->start, range->size);
    range->kept = false;
  }
}

static CUresult give(uint64_t address, enum kind kind, enum kind other) {
  LOCKED;
  struct range *range = range_of(address);
  bool is_it = range != NULL && range->start == address && (range->kind == kind || range->kind == other);
  RETURN_IF(!is_it, CUDA_ERROR_INVALID_VALUE);
  forget(range);
  if (range->kind == MANAGED || range->kind == HOST) {
    munmap((void *)range->start, range->size);
  }
  discharge(range->device, range->charged);
  remove_range(range);
  return CUDA_SUCCESS;
}

CUresult give_memory(CUdeviceptr address) { return give(address, DEVICE, MANAGED); }
API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  RETURN_IF(is_wrong(address), CUDA_ERROR_INVALID_VALUE);
  struct context *context = current_context();
  return context == NULL ? without_context() : take_memory(context->device, size, NULL, address);
}
API CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                unsigned element UNUSED) {
  size_t size;
  RETURN_IF(is_wrong(pitch) || width >> 56 != 0, CUDA_ERROR_INVALID_VALUE);
  *pitch = (width + 511) / 512 * 512;
  RETURN_IF(__builtin_mul_overflow(*pitch, height, &size), CUDA_ERROR_INVALID_VALUE);
  return cuMemAlloc_v2(address, size);
}
API CUresult cuMemFree_v2(CUdeviceptr address) { return address == 0 ? CUDA_SUCCESS : give_memory(address); }
API CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
  RETURN_IF(is_wrong(unused) || is_wrong(total), CUDA_ERROR_INVALID_VALUE);
  struct context *context = current_context();
  RETURN_IF(context == NULL, without_context());
  const struct card *card = the_card();
  CUdevice device = context->device;
  LOCKED;
  size_t used = areas[device].used + context_bytes(device);
  used += (size_t)used_on(number_of_card(device), (int)getpid());
  *total = card->memory;
  *unused = used < card->memory ? card->memory - used : 0;
  return CUDA_SUCCESS;
}
API CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
  LOCKED;
  struct range *range = range_of(address);
  RETURN_IF(range == NULL, CUDA_ERROR_NOT_FOUND);
  TELL(start, range->start);
  TELL(size, range->size);
  return CUDA_SUCCESS;
}

/* The host's memory is the host's, and may be written to; its device is the one that was current (cudaPointerAttributes). */
static CUresult take_host(void **address, size_t size, enum kind kind) {
  RETURN_IF(is_wrong(address), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(size >> 47 != 0, CUDA_ERROR_OUT_OF_MEMORY);
  size_t whole = (size + 4095) / 4096 * 4096;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *got = size == 0 ? MAP_FAILED : mmap(NULL, whole, PROT_READ | PROT_WRITE, flags, -1, 0);
  RETURN_IF(got == MAP_FAILED, size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY);
  LOCKED;
  if (add_range((uint64_t)got, whole, kind, current_device()) == NULL) {
    munmap(got, whole);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = got;
  return CUDA_SUCCESS;
}
API CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags UNUSED) {
  return take_host(address, size, HOST);
}
API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags UNUSED) {
  RETURN_IF(current_context() == NULL, without_context());
  return take_host((void **)address, size, MANAGED);
}
API CUresult cuMemFreeHost(void *address) { return give((uint64_t)address, HOST, HOST); }
API CUresult cuMemHostUnregister(void *address) { return give((uint64_t)address, REGISTERED, REGISTERED); }
API CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags UNUSED) {
  RETURN_IF(size == 0 || !is_mapped((uint64_t)address, size), CUDA_ERROR_INVALID_VALUE);
  LOCKED;
  return add_range((uint64_t)address, size, REGISTERED, current_device()) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
ANSWER(cuMemHostGetDevicePointer_v2, (CUdeviceptr *address, void *host, unsigned flags UNUSED), address,
       (CUdeviceptr)host)
ANSWER(cuMemHostGetFlags, (unsigned *flags, void *host UNUSED), flags, 3)
static size_t value_at(CUdeviceptr address) { return (address * 0x9e3779b97f4a7c15u >> 32) % MOST_VALUES; }

static bool is_known_value(CUdeviceptr address, size_t size) {
  size_t at = value_at(address);
  return values[at].address == address && values[at].size == size;
}

/* By pickle's protocol 4 or 5, as torch.distributed sends objects. */
bool is_pickled(CUdeviceptr address) { return (*(const uint16_t *)address & 0xfeff) == 0x0480; }

/* What is small always is: ids, lengths, the places of DDP's buckets. Where the rest is too much, what was dropped since
 * is counted no more. */
static bool may_keep(struct range *range, size_t size, CUdeviceptr from) {
  static size_t refused = MOST_KEPT;
  if (kept + size > MOST_KEPT && (refused += size) > MOST_KEPT / 8) {
    kept = resident_bytes();
    refused = 0;
  }
  bool is_much = size > LONGEST_COPY || (size > SMALL_COPY && kept + size > MOST_KEPT);
  RETURN_IF(is_much && (from == 0 || !is_pickled(from)), false);
  kept += size;
  range->kept = true;
  return true;
}

static bool holds_known(const struct range *range, CUdeviceptr address, size_t size) {
  return range->kept && (size > sizeof(uint64_t) || is_known_value(address, size));
}

bool knows(CUdeviceptr address, size_t size) {
  LOCKED;
  struct range *range = range_of(address);
  return !is_on_card(range) || holds_known(range, address, size);
}

/* Copies as far as the bytes are known: what the host wrote. What kernels would have computed reads as zeros. Returns
 * whether the host reads what it does not know. */
static bool copy_known(CUdeviceptr to, CUdeviceptr from, size_t size) {
  LOCKED;
  struct range *target = range_of(to), *source = range_of(from);
  bool from_card = is_on_card(source), to_card = is_on_card(target);
  if (from_card && !to_card) {
    if (holds_known(source, from, size)) {
      memcpy((void *)to, (const void *)from, size);
    } else {
      memset((void *)to, 0, size);
    }
    return !is_known_value(from, size);
  }
  if (!from_card && !to_card) {
    memmove((void *)to, (const void *)from, size);
  } else if ((!from_card || source->kept) && may_keep(target, size, from)) {
    memmove((void *)to, (const void *)from, size);
    if (!from_card || is_known_value(from, size)) {
      values[value_at(to)] = (struct value){to, size};
    }
  } else if (target->kept) {
    drop(to, size);
  }
  return false;
}

CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  RETURN_IF(size == 0, CUDA_SUCCESS);
  RETURN_IF(!is_reachable(to, size) || !is_reachable(from, size), CUDA_ERROR_INVALID_VALUE);
  settle(from, size);
  expect_nothing(to, size);
  if (copy_known(to, from, size)) {
    report_read((void *)to, size); /* which may run code of the program's */
  }
  return CUDA_SUCCESS;
}

/* Sets `count` values of `width` bytes; on the card only what is kept there already needs it. */
CUresult fill(CUdeviceptr to, uint32_t value, unsigned width, size_t count) {
  RETURN_IF(count == 0, CUDA_SUCCESS);
  RETURN_IF(count >> 56 != 0 || !is_reachable(to, width * count), CUDA_ERROR_INVALID_VALUE);
  expect_nothing(to, width * count);
  LOCKED;
  struct range *range = range_of(to);
  size_t size = width * count;
  if (!is_on_card(range) || (size <= LONGEST_COPY && (range->kept || (value != 0 && may_keep(range, size, 0))))) {
    for (size_t at = 0; at < count; at++) {
      memcpy((char *)to + at * width, &value, width);
    }
  } else if (range->kept) {
    drop(to, size);
  }
  return CUDA_SUCCESS;
}

/* PyTorch's allocator tells its profiler of each block that it takes and gives back, the latter with a negative size
 * (c10::reportMemoryUsageToProfiler, c10/core/Allocator.h): what the host wrote there is not the next tensor's. */
API void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t change, size_t allocated,
                                                               size_t reserved, uint16_t device) {
  static void (*tell)(void *, int64_t, size_t, size_t, uint16_t);
  if (tell == NULL) {
    void *library = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&tell = library == NULL ? NULL : dlsym(library, __func__);
  }
  {
    LOCKED;
    struct range *range = change < 0 && (device & 0xff) == 1 ? range_of((CUdeviceptr)block) : NULL; /* 1: a card's */
    if (range != NULL && range->kept) {
      drop((CUdeviceptr)block, (size_t)-change);
    }
  }
  if (tell != NULL) {
    tell(block, change, allocated, reserved, device);
  }
}

/* CU_POINTER_ATTRIBUTE_…; `range` NULL where the address is nobody's. */
#define TOLD(type, answered) { *(type *)answer = answered; return CUDA_SUCCESS; }
static CUresult pointer_attribute(void *answer, int number, const struct range *range, CUdeviceptr address) {
  struct range none = {.device = -2};
  const struct range *it = range == NULL ? &none : range;
  bool is_hosts = it->kind == HOST || it->kind == REGISTERED;
  RETURN_IF(range == NULL && number >= 2 && number <= 4, CUDA_ERROR_INVALID_VALUE);
  switch (number) {
    case 1: TOLD(struct context *, it->kind == REGISTERED ? NULL : context_of(it->device)) /* CONTEXT */
    case 2: TOLD(unsigned, is_hosts ? 1 : 2) /* MEMORY_TYPE: 1 the host's, 2 a device's */
    case 3: case 4: TOLD(uint64_t, number == 4 && is_on_card(range) ? 0 : address) /* DEVICE_POINTER, HOST_POINTER */
    case 6: TOLD(uint64_t, 0) /* SYNC_MEMOPS */
    case 7: case 20: TOLD(uint64_t, it->id) /* BUFFER_ID, MEMORY_BLOCK_ID */
    case 8: case 13: TOLD(bool, range != NULL && (number == 13 || it->kind == MANAGED)) /* IS_MANAGED, MAPPED */
    case 9: TOLD(int, it->device) /* DEVICE_ORDINAL */
    case 10: TOLD(int, range != NULL && it->kind == DEVICE && !it->pool) /* IS_LEGACY_CUDA_IPC_CAPABLE */
    case 11: case 19: TOLD(uint64_t, it->start) /* RANGE_START_ADDR, MAPPING_BASE_ADDR */
    case 12: case 18: TOLD(uint64_t, it->size) /* RANGE_SIZE, MAPPING_SIZE */
    case 15: TOLD(int, 3) /* ACCESS_FLAGS, a field of bits */
    case 17: TOLD(uint64_t, (uint64_t)it->pool) /* MEMPOOL_HANDLE */
    case 21: TOLD(int, 0) /* IS_HW_DECOMPRESS_CAPABLE */
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}
API CUresult cuPointerGetAttribute(void *answer, int number, CUdeviceptr address) {
  RETURN_IF(is_wrong(answer), CUDA_ERROR_INVALID_VALUE);
  LOCKED;
  struct range *range = range_of(address);
  return range == NULL ? CUDA_ERROR_INVALID_VALUE : pointer_attribute(answer, number, range, address);
}

/* As cuda.h says, an address that is nobody's is no error here: it has no memory type. */
API CUresult cuPointerGetAttributes(unsigned count, const int *numbers, void **answers, CUdeviceptr address) {
  RETURN_IF(is_wrong(numbers) || is_wrong(answers) || count > 64, CUDA_ERROR_INVALID_VALUE);
  LOCKED;
  struct range *range = range_of(address);
  for (unsigned at = 0; at < count; at++) {
    if (!is_wrong(answers[at]) && pointer_attribute(answers[at], numbers[at], range, address) != CUDA_SUCCESS) {
      *(unsigned *)answers[at] = 0;
    }
  }
  return CUDA_SUCCESS;
}

