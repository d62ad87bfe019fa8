/* A table of addresses, each with what it is: handles that the driver has given out, as CUDA refuses any other, and what
 * a program registers. */
#include "driver.h"

/* It doubles when it is half full; what was there before and is no more keeps its place, marked by kind 0. */
static struct entry *entries;
static size_t count, room;

static struct entry *place_of(struct entry *table, size_t size, const void *address) {
  size_t at = ((uintptr_t)address >> 4) * 0x9e3779b97f4a7c15u % size;
  while (table[at].address != NULL && table[at].address != address) {
    at = (at + 1) % size;
  }
  return &table[at];
}

struct entry *entry_of(const void *address) {
  struct entry *found = room == 0 ? NULL : place_of(entries, room, address);
  return found == NULL || found->kind == 0 ? NULL : found;
}

bool enter(enum handles kind, const void *address, const void *value) {
  if (2 * count >= room) {
    size_t more = room == 0 ? 1 << 10 : 2 * room;
    struct entry *table = calloc(more, sizeof *table);
    RETURN_IF(table == NULL, false);
    count = 0;
    for (size_t at = 0; at < room; at++) {
      if (entries[at].kind != 0) {
        *place_of(table, more, entries[at].address) = entries[at];
        count++;
      }
    }
    free(entries);
    entries = table;
    room = more;
  }
  struct entry *entry = place_of(entries, room, address);
  count += entry->address == NULL;
  *entry = (struct entry){address, kind, value};
  return true;
}

void *make_handle(enum handles kind, size_t size) {
  LOCKED;
  void *made = calloc(1, size);
  RETURN_IF(made == NULL || enter(kind, made, NULL), made);
  free(made);
  return NULL;
}

bool is_handle(enum handles kind, const void *handle) {
  RETURN_IF(is_wrong(handle), false);
  LOCKED;
  struct entry *entry = entry_of(handle);
  return entry != NULL && entry->kind == kind;
}

bool end_handle(enum handles kind, void *handle) {
  LOCKED;
  RETURN_IF(!is_handle(kind, handle), false);
  entry_of(handle)->kind = 0;
  free(handle);
  return true;
}

bool is_mapped(uint64_t address, size_t size) {
  uint64_t first = address / 4096 * 4096;
  RETURN_IF(is_wrong((void *)address) || size >> 56 != 0, false);
  return size == 0 || msync((void *)first, address + size - first, MS_ASYNC) == 0; /* which does nothing else */
}

/* A function of a library, or of what was made in memory that may be run. */
bool is_code(const void *function) {
  Dl_info where;
  RETURN_IF(is_wrong(function), false);
  RETURN_IF(dladdr(function, &where) != 0 && where.dli_sname != NULL, true);
  FILE *maps = fopen("/proc/self/maps", "re");
  bool is_there = maps == NULL;
  unsigned long low, high;
  char may_run, line[512];
  while (!is_there && fgets(line, sizeof line, maps) != NULL) {
    bool is_read = sscanf(line, "%lx-%lx %*c%*c%c", &low, &high, &may_run) == 3;
    is_there = is_read && may_run == 'x' && (uintptr_t)function >= low && (uintptr_t)function < high;
  }
  if (maps != NULL) {
    fclose(maps);
  }
  return is_there;
}
