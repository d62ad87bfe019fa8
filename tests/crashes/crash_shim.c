/* Goes in front of the C library (LD_PRELOAD) and lets calls that change files fail, or the process end, at one of them.
 *
 * Counted are those on files below CRASH_FOLDER: the names are of the calls that SQLite and Python make. crash_arm()
 * says at which of them something happens from now on, and what; crash_count() how many there were since.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { NOTHING, FAIL, FULL, KILL, HALF, KILL_AFTER };
static int at = -1, how = NOTHING, code = 0, count = 0;

void crash_arm(int where, int what, int error) { at = where; how = what; code = error; count = 0; }
int crash_count(void) { return count; }

static int ours(const char *path) {
    const char *folder = getenv("CRASH_FOLDER");
    return folder && path && !strncmp(path, folder, strlen(folder));
}

static int ours_open(int handle) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return ours(path);
}

/* What happens at this call: 0 nothing, -1 it fails (errno is set), 1 it is done and then the process ends, 2 the first
 * half of it is done and then the process ends. FULL: every call that needs room fails from here on. */
static int hit(int is_ours, int needs_room) {
    if (!is_ours || how == NOTHING) return 0;
    int now = count++;
    if (how == FULL ? (now < at || !needs_room) : now != at) return 0;
    if (how == FAIL || how == FULL) { errno = code; return -1; }
    if (how == KILL) _exit(137);
    return how == HALF ? 2 : 1;
}

#define REAL(type, name) ((type)dlsym(RTLD_NEXT, name))
#define AROUND(is_ours, needs_room, call)          \
    int now = hit(is_ours, needs_room);            \
    if (now < 0) return -1;                        \
    __typeof__(call) answer = call;                \
    if (now > 0) _exit(137);                       \
    return answer

#define WRITES(name, ...)                                                                              \
    ssize_t name(int handle, const void *data, size_t size, ##__VA_ARGS__)
WRITES(write) {
    ssize_t (*real)(int, const void *, size_t) = REAL(ssize_t (*)(int, const void *, size_t), "write");
    int now = hit(ours_open(handle), 1);
    if (now < 0) return -1;
    ssize_t answer = real(handle, data, now == 2 ? size / 2 : size);
    if (now > 0) _exit(137);
    return answer;
}
#define WRITES_AT(name)                                                                                    \
    WRITES(name, off_t place) {                                                                            \
        ssize_t (*real)(int, const void *, size_t, off_t) =                                                \
            REAL(ssize_t (*)(int, const void *, size_t, off_t), #name);                                    \
        int now = hit(ours_open(handle), 1);                                                               \
        if (now < 0) return -1;                                                                            \
        ssize_t answer = real(handle, data, now == 2 ? size / 2 : size, place);                            \
        if (now > 0) _exit(137);                                                                           \
        return answer;                                                                                     \
    }
WRITES_AT(pwrite)
WRITES_AT(pwrite64)

int fsync(int handle) { AROUND(ours_open(handle), 1, REAL(int (*)(int), "fsync")(handle)); }
int fdatasync(int handle) { AROUND(ours_open(handle), 1, REAL(int (*)(int), "fdatasync")(handle)); }
int ftruncate(int handle, off_t size) {
    AROUND(ours_open(handle), 0, REAL(int (*)(int, off_t), "ftruncate")(handle, size));
}
int ftruncate64(int handle, off_t size) {
    AROUND(ours_open(handle), 0, REAL(int (*)(int, off_t), "ftruncate64")(handle, size));
}
int rename(const char *from, const char *to) {
    AROUND(ours(from), 0, REAL(int (*)(const char *, const char *), "rename")(from, to));
}
int renameat(int a, const char *from, int b, const char *to) {
    AROUND(ours(from), 0, REAL(int (*)(int, const char *, int, const char *), "renameat")(a, from, b, to));
}
int link(const char *from, const char *to) {
    AROUND(ours(from), 1, REAL(int (*)(const char *, const char *), "link")(from, to));
}
int unlink(const char *path) { AROUND(ours(path), 0, REAL(int (*)(const char *), "unlink")(path)); }
int unlinkat(int at_, const char *path, int flags) {
    AROUND(ours(path), 0, REAL(int (*)(int, const char *, int), "unlinkat")(at_, path, flags));
}
int mkdir(const char *path, mode_t mode) {
    AROUND(ours(path), 1, REAL(int (*)(const char *, mode_t), "mkdir")(path, mode));
}
int mkdirat(int at_, const char *path, mode_t mode) {
    AROUND(ours(path), 1, REAL(int (*)(int, const char *, mode_t), "mkdirat")(at_, path, mode));
}

#define OPENS(name)                                                                                        \
    int name(const char *path, int flags, ...) {                                                           \
        va_list more;                                                                                      \
        va_start(more, flags);                                                                             \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                            \
        va_end(more);                                                                                      \
        AROUND(flags & O_CREAT && ours(path), 1, REAL(int (*)(const char *, int, ...), #name)(path, flags, mode)); \
    }
OPENS(open)
OPENS(open64)
