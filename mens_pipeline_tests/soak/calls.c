/* The n-th call to functions of one kind, a letter, fails, or kills the process. Nothing happens before `arm`. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int made[128];
static char armed;
static int nth, code;

/* An error of 0 kills. */
void arm(char kind, int number, int error) {
    memset(made, 0, sizeof made);
    nth = number;
    code = error;
    armed = kind;
}

static int fails(char kind) {
    if (__sync_add_and_fetch(&made[(int)kind], 1) != nth || kind != armed) return 0;
    if (!code) kill(getpid(), SIGKILL);
    errno = code;
    return 1;
}

static int is_file(int handle) {
    struct stat found;
    return !fstat(handle, &found) && S_ISREG(found.st_mode);
}

#define WRAP(kind, counts, type, name, parameters, arguments) \
    type name parameters { \
        if ((counts) && fails(kind)) return -1; \
        return ((type(*) parameters)dlsym(RTLD_NEXT, #name))arguments; \
    }

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (flags & O_CREAT && fails('o')) return -1;
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64"))(path, flags, mode);
}

WRAP('w', is_file(to), ssize_t, write, (int to, const void *from, size_t size), (to, from, size))
WRAP('w', 1, ssize_t, pwrite64, (int to, const void *from, size_t size, off_t at), (to, from, size, at))
WRAP('s', 1, ssize_t, sendfile64, (int to, int from, off_t *at, size_t size), (to, from, at, size))
WRAP('s', 1, ssize_t, copy_file_range, (int from, off_t *at, int to, off_t *there, size_t size, unsigned flags),
     (from, at, to, there, size, flags))
WRAP('t', 1, int, ftruncate64, (int file, off_t size), (file, size))
WRAP('f', 1, int, fsync, (int file), (file))
WRAP('f', 1, int, fdatasync, (int file), (file))
WRAP('l', 1, int, flock, (int file, int operation), (file, operation))
WRAP('u', 1, int, utimensat, (int at, const char *path, const struct timespec times[2], int flags),
     (at, path, times, flags))
WRAP('u', 1, int, futimens, (int file, const struct timespec times[2]), (file, times))
WRAP('c', 1, int, chmod, (const char *path, mode_t mode), (path, mode))
WRAP('m', 1, int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP('r', 1, int, rename, (const char *from, const char *to), (from, to))
WRAP('h', 1, int, link, (const char *from, const char *to), (from, to))
WRAP('d', 1, int, unlink, (const char *path), (path))
WRAP('d', 1, int, unlinkat, (int at, const char *path, int flags), (at, path, flags))
WRAP('d', 1, int, rmdir, (const char *path), (path))
