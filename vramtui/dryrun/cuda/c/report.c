/* What a process did that whoever started it should know: a file of its own in the folder VRAMTUI_DRIVER_REPORT, which
 * outlives any end. The file is a struct of numbers, then lines of text: `unmodelled NAME by CALLER`. */
#include "driver.h"

#define SIZE 65536
#define MAGIC 0x32445256 /* VRD2 */

struct report {
  uint32_t magic, pid;
  uint64_t started; /* by which a process is known whose number was given again; 0 without /proc */
  uint64_t reads, read_bytes; /* copies from the card to the host */
  int64_t used[MOST_DEVICES], peak[MOST_DEVICES], context[MOST_DEVICES], refused[MOST_DEVICES], total[MOST_DEVICES];
  int32_t number[MOST_DEVICES]; /* of the card that each device is */
  char text[];
};

static struct report *report;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t written;
static pid_t owner;

/* When a living process began, in clock ticks since boot; 0 if it has ended, waited for or not (proc_pid_stat(5)). */
static uint64_t start_of(int pid) {
  char path[64], text[1024], state;
  int threads;
  unsigned long long started;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  RETURN_IF(file < 0, 0);
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  text[size < 0 ? 0 : size] = '\0';
  const char *name = strrchr(text, ')');
  const char *format = ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu";
  RETURN_IF(name == NULL || sscanf(name, format, &state, &threads, &started) != 3, 0);
  bool has_ended = state == 'X' || (state == 'Z' && threads <= 1); /* not where only the first thread has */
  return has_ended ? 0 : started;
}

static bool is_alive(const struct report *other) {
  return other->started == 0 ? kill((int)other->pid, 0) == 0 : start_of((int)other->pid) == other->started;
}

/* A file of a process beside the others; -1 if there is none. */
int open_beside(int flags, const char *format, ...) {
  const char *folder = getenv("VRAMTUI_DRIVER_REPORT");
  char path[4096];
  int length = folder == NULL ? -1 : snprintf(path, sizeof path, "%s/", folder);
  RETURN_IF(length < 0 || length >= (int)sizeof path, -1);
  va_list names;
  va_start(names, format);
  int more = vsnprintf(path + length, sizeof path - (size_t)length, format, names);
  va_end(names);
  return more < 0 || length + more >= (int)sizeof path ? -1 : open(path, flags | O_CLOEXEC, 0600);
}

/* A program that this process was before has left its peaks there. */
static struct report *open_report(void) {
  RETURN_IF(report != NULL && owner == getpid(), report);
  owner = getpid();
  uint64_t started = start_of((int)owner);
  int file = open_beside(O_RDWR | O_CREAT, "%d-%llu.report", (int)owner, (unsigned long long)started);
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
  report->started = started;
  memset(report->used, 0, sizeof report->used);
  for (CUdevice device = 0; device < MOST_DEVICES; device++) {
    report->number[device] = number_of_card(device);
  }
  written = strnlen(report->text, SIZE - sizeof *report - 1);
  return report;
}

void lock_report(void) { pthread_mutex_lock(&lock); }
void unlock_report(void) { pthread_mutex_unlock(&lock); }
/* In a new process: it has another's report. */
void forget_report(void) {
  pthread_mutex_init(&lock, NULL);
  report = NULL;
}

/* One process after the other takes memory of the cards, which all of them share; the answer is for `let_others`. */
int keep_others_waiting(void) {
  struct flock whole = {.l_type = F_WRLCK};
  int file = open_beside(O_RDWR | O_CREAT, "lock");
  while (file >= 0 && fcntl(file, F_OFD_SETLKW, &whole) != 0 && errno == EINTR) {
  }
  return file;
}
void let_others(int file) {
  struct flock whole = {.l_type = F_UNLCK};
  if (file >= 0) {
    fcntl(file, F_OFD_SETLK, &whole); /* a child that was started meanwhile has the file open as well */
    close(file);
  }
}

void report_unmodelled(const char *name, void *caller) {
  Dl_info where = {0};
  dladdr(caller, &where);
  const char *library = where.dli_fname == NULL ? "?" : where.dli_fname;
  const char *slash = strrchr(library, '/');
  lock_report();
  struct report *own = open_report();
  char line[256];
  int length = snprintf(line, sizeof line, "unmodelled %s by %s\n", name, slash == NULL ? library : slash + 1);
  size_t room = SIZE - sizeof *own - 1;
  if (length > 0 && written + (size_t)length < room && strstr(own->text, line) == NULL) {
    memcpy(own->text + written, line, (size_t)length);
    written += (size_t)length;
  }
  unlock_report();
}

static void (*listener)(void *, size_t);
/* Calls `call` in the thread of each read to come, so that a program says where it is and writes what it knows of it. */
API void vramtui_listen_to_reads(void (*call)(void *, size_t)) { listener = call; }

void report_read(void *to, size_t bytes) {
  lock_report();
  struct report *own = open_report();
  own->reads++;
  own->read_bytes += bytes;
  unlock_report();
  if (listener != NULL) {
    listener(to, bytes);
  }
}

void report_used(CUdevice device, int64_t change, int64_t context, int64_t others) {
  lock_report();
  struct report *own = open_report();
  int64_t used = own->used[device] += change, total = used + others;
  own->peak[device] = used > own->peak[device] ? used : own->peak[device];
  own->context[device] = context > own->context[device] ? context : own->context[device];
  own->total[device] = total > own->total[device] ? total : own->total[device];
  if (change >= own->refused[device]) {
    own->refused[device] = 0; /* what there was no room for was asked for again */
  }
  unlock_report();
}

bool report_refused(CUdevice device, size_t bytes) {
  lock_report();
  open_report()->refused[device] = (int64_t)bytes;
  unlock_report();
  return false;
}

int users_of(int number, struct user *users, int room, int without, int64_t *sum) {
  const char *folder = getenv("VRAMTUI_DRIVER_REPORT");
  DIR *files = folder == NULL ? NULL : opendir(folder);
  int count = 0;
  struct dirent *entry;
  while (files != NULL && (entry = readdir(files)) != NULL) {
    struct report other;
    int pid = atoi(entry->d_name);
    bool is_other = pid > 0 && pid != without && strstr(entry->d_name, ".report") != NULL;
    int file = is_other ? open_beside(O_RDONLY | O_NONBLOCK, "%s", entry->d_name) : -1;
    if (file < 0) {
      continue;
    }
    bool whole = read(file, &other, sizeof other) == (ssize_t)sizeof other && other.magic == MAGIC;
    int64_t used = 0;
    for (int device = 0; whole && device < MOST_DEVICES; device++) {
      used += other.number[device] == number ? other.used[device] : 0;
    }
    close(file);
    if (used > 0 && is_alive(&other)) {
      *sum += used;
      if (count++ < room) {
        users[count - 1] = (struct user){.pid = pid, .used = used};
      }
    }
  }
  if (files != NULL) {
    closedir(files);
  }
  return count;
}

int64_t used_on(int number, int without) {
  int64_t sum = 0;
  users_of(number, NULL, 0, without, &sum);
  return sum;
}
