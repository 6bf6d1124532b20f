/* A disk that fails one larger write, the first: put before the system's library. Without io_uring,
   which asks no library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { SMALL = 1 << 16 };

ssize_t pwrite64(int fd, const void *buffer, size_t count, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    static atomic_flag has_failed = ATOMIC_FLAG_INIT;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pwrite64");
    if (count > SMALL && !atomic_flag_test_and_set(&has_failed)) {
        errno = EIO;
        return -1;
    }
    return real(fd, buffer, count, offset);
}

long syscall(long number, ...) {
    static long (*real)(long, ...);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_io_uring_setup) {
        errno = ENOSYS;
        return -1;
    }
    long given[6];
    va_list all;
    va_start(all, number);
    for (int at = 0; at < 6; ++at) given[at] = va_arg(all, long);
    va_end(all);
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
