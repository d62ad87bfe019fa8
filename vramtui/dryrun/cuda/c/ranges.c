/* Which addresses are whose: all that was handed out, by address. */
#include "driver.h"

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static struct range **ranges;
static size_t count, room;
static uint64_t last_id;

static void make_lock(void) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&lock, &attributes);
}

int lock_memory(void) {
  pthread_once(&lock_once, make_lock);
  return pthread_mutex_lock(&lock);
}
void unlock_memory(const int *locked UNUSED) { pthread_mutex_unlock(&lock); }

/* A child is forked while no other thread is within, and begins with locks of its own. */
static void before_fork(void) {
  lock_nccl();
  lock_memory();
  lock_report();
}
static void after_fork(void) {
  unlock_report();
  unlock_memory(NULL);
  unlock_nccl();
}
static void begin_anew(void) {
  make_lock();
  forget_report();
  forget_nccl();
  forget_memory();
  forget_contexts();
}
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, begin_anew); }

/* How many ranges begin at or below the address. */
static size_t place_of(uint64_t address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (ranges[middle]->start <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* The range that holds an address: of a reservation, what is mapped there before the reservation itself. */
struct range *range_of(uint64_t address) {
  for (size_t at = place_of(address); at-- > 0;) {
    struct range *range = ranges[at];
    RETURN_IF(address < range->start + range->size, range);
  }
  return NULL;
}

bool is_on_card(const struct range *range) {
  return range != NULL && (range->kind == DEVICE || range->kind == OPENED);
}

/* Memory of cards, range after range, or of the host. */
bool is_reachable(uint64_t address, size_t size) {
  RETURN_IF(is_wrong((void *)address) || size >> 56 != 0, false);
  LOCKED;
  struct range *range = range_of(address);
  RETURN_IF(!is_on_card(range), is_mapped(address, size));
  for (uint64_t end = address + size; address < end; range = range_of(address)) {
    RETURN_IF(!is_on_card(range), false);
    uint64_t whole = range->charged > range->size ? range->charged : range->size;
    address = range->start + whole;
  }
  return true;
}

struct range *add_range(uint64_t start, size_t size, enum kind kind, CUdevice device) {
  if (count == room) {
    size_t more = room == 0 ? 256 : 2 * room;
    struct range **moved = realloc(ranges, more * sizeof *ranges);
    RETURN_IF(moved == NULL, NULL);
    ranges = moved;
    room = more;
  }
  struct range *range = calloc(1, sizeof *range);
  RETURN_IF(range == NULL, NULL);
  *range = (struct range){.start = start, .size = size, .kind = kind, .device = device, .id = ++last_id};
  size_t at = place_of(start);
  memmove(ranges + at + 1, ranges + at, (count - at) * sizeof *ranges);
  ranges[at] = range;
  count++;
  return range;
}

void remove_range(struct range *range) {
  for (size_t at = place_of(range->start); at-- > 0;) {
    if (ranges[at] == range) {
      memmove(ranges + at, ranges + at + 1, (count - at - 1) * sizeof *ranges);
      count--;
      free(range);
      return;
    }
  }
}

/* Bytes of the host's memory that copies to cards take: those pages of theirs that are there. */
size_t resident_bytes(void) {
  unsigned char there[4096];
  size_t pages = 0;
  for (size_t at = 0; at < count; at++) {
    uint64_t end = ranges[at]->kept ? ranges[at]->start + ranges[at]->size : 0;
    for (uint64_t from = ranges[at]->start; from < end; from += sizeof there * 4096) {
      size_t size = end - from < sizeof there * 4096 ? end - from : sizeof there * 4096;
      for (size_t page = mincore((void *)from, size, there) == 0 ? (size + 4095) / 4096 : 0; page-- > 0;) {
        pages += there[page] & 1;
      }
    }
  }
  return 4096 * pages;
}

/* The highest gap of `size` bytes between `low` and `high`; 0 where there is none. A card hands memory out from above:
 * PyTorch until 2.11 takes the lower of two free blocks of one size, and with this order alone it took those that it took
 * on an H200 (a GPT, allocated after each step; tests/golden/card/scripts.json). */
uint64_t highest_gap(uint64_t low, uint64_t high, size_t size) {
  size_t whole = (size + CHUNK - 1) / CHUNK * CHUNK;
  for (size_t at = place_of(high - 1); at-- > 0 && ranges[at]->start >= low; high = ranges[at]->start) {
    uint64_t behind = (ranges[at]->start + ranges[at]->size + CHUNK - 1) / CHUNK * CHUNK;
    RETURN_IF(high >= behind + whole, high - whole);
  }
  return high >= low + whole ? high - whole : 0;
}

/* Addresses that hold nothing yet: a page takes memory of the host when it is first written to. */
void *reserve_addresses(size_t size, size_t alignment, uint64_t wanted) {
  alignment = alignment < CHUNK ? CHUNK : alignment;
  RETURN_IF(size >> 47 != 0 || alignment >> 47 != 0 || (alignment & (alignment - 1)) != 0, NULL);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char *got = mmap((void *)wanted, size + alignment, PROT_READ | PROT_WRITE, flags, -1, 0);
  RETURN_IF(got == MAP_FAILED, NULL);
  uint64_t start = ((uint64_t)got + alignment - 1) / alignment * alignment;
  if (start > (uint64_t)got) {
    munmap(got, start - (uint64_t)got);
  }
  if ((uint64_t)got + alignment > start) {
    munmap((void *)(start + size), (uint64_t)got + alignment - start);
  }
  madvise((void *)start, size, MADV_NOHUGEPAGE);
  madvise((void *)start, size, MADV_DONTDUMP);
  return (void *)start;
}
