/* What a process did that whoever started it should know: a file of its own in the folder VRAMTUI_DRIVER_REPORT, which
 * outlives any end. The file is a struct of numbers, then lines of text: `unmodelled NAME by CALLER`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

#define SIZE 65536
#define MAGIC 0x31445256 /* VRD1 */

struct report {
  uint32_t magic, pid;
  uint64_t reads, read_bytes; /* copies from the card to the host */
  int64_t used[MOST_DEVICES], peak[MOST_DEVICES], context[MOST_DEVICES], refused[MOST_DEVICES], total[MOST_DEVICES];
  char text[];
};

static struct report *report;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t written;
static pid_t owner;
static struct report *open_report(void) {
  RETURN_IF(report != NULL && owner == getpid(), report);
  const char *folder = getenv("VRAMTUI_DRIVER_REPORT");
  char path[512];
  owner = getpid();
  written = 0;
  snprintf(path, sizeof path, "%s/%d.report", folder == NULL ? "" : folder, (int)owner);
  int file = folder == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  void *got = MAP_FAILED;
  if (file >= 0) {
    if (ftruncate(file, SIZE) == 0) {
      got = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
  }
  if (got == MAP_FAILED) {
    got = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (got == MAP_FAILED) {
    abort();
  }
  report = got;
  report->magic = MAGIC;
  report->pid = (uint32_t)owner;
  return report;
}

void report_unmodelled(const char *name, void *caller) {
  Dl_info where = {0};
  dladdr(caller, &where);
  const char *library = where.dli_fname == NULL ? "?" : where.dli_fname;
  const char *slash = strrchr(library, '/');
  pthread_mutex_lock(&lock);
  struct report *own = open_report();
  char line[256];
  int length = snprintf(line, sizeof line, "unmodelled %s by %s\n", name, slash == NULL ? library : slash + 1);
  size_t room = SIZE - sizeof *own - 1;
  if (length > 0 && written + (size_t)length < room && strstr(own->text, line) == NULL) {
    memcpy(own->text + written, line, (size_t)length);
    written += (size_t)length;
  }
  pthread_mutex_unlock(&lock);
}

static void (*listener)(void *, size_t);
/* Calls `call` in the thread of each read to come, so that a program says where it is and writes what it knows of it. */
API void vramtui_listen_to_reads(void (*call)(void *, size_t)) { listener = call; }

void report_read(void *to, size_t bytes) {
  pthread_mutex_lock(&lock);
  struct report *own = open_report();
  own->reads++;
  own->read_bytes += bytes;
  pthread_mutex_unlock(&lock);
  if (listener != NULL) {
    listener(to, bytes);
  }
}

void report_used(CUdevice device, int64_t change) {
  pthread_mutex_lock(&lock);
  struct report *own = open_report();
  own->used[device] += change;
  own->peak[device] = own->used[device] > own->peak[device] ? own->used[device] : own->peak[device];
  pthread_mutex_unlock(&lock);
}

void report_most(CUdevice device, int64_t context, int64_t total) {
  pthread_mutex_lock(&lock);
  struct report *own = open_report();
  own->context[device] = context > own->context[device] ? context : own->context[device];
  own->total[device] = total > own->total[device] ? total : own->total[device];
  pthread_mutex_unlock(&lock);
}

bool report_refused(CUdevice device, size_t bytes) {
  pthread_mutex_lock(&lock);
  open_report()->refused[device] = (int64_t)bytes;
  pthread_mutex_unlock(&lock);
  return false;
}

int users_of(CUdevice device, struct user *users, int room) {
  const char *folder = getenv("VRAMTUI_DRIVER_REPORT");
  DIR *files = folder == NULL ? NULL : opendir(folder);
  RETURN_IF(files == NULL, 0);
  int count = 0;
  struct dirent *entry;
  while (count < room && (entry = readdir(files)) != NULL) {
    char path[512];
    struct report other;
    int pid = atoi(entry->d_name);
    if (pid <= 0 || kill(pid, 0) != 0) {
      continue;
    }
    snprintf(path, sizeof path, "%s/%.64s", folder, entry->d_name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
      bool whole = read(file, &other, sizeof other) == (ssize_t)sizeof other && other.magic == MAGIC;
      if (whole && other.used[device] > 0) {
        users[count++] = (struct user){.pid = pid, .used = other.used[device]};
      }
      close(file);
    }
  }
  closedir(files);
  return count;
}

int64_t used_on(CUdevice device, int without) {
  struct user users[256];
  int64_t sum = 0;
  for (int at = users_of(device, users, 256); at-- > 0;) {
    sum += users[at].pid == without ? 0 : users[at].used;
  }
  return sum;
}
