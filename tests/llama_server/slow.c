/* A slow disk: put before the system's library, it has each larger read take four seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

enum { SMALL = 1 << 16, SECONDS = 4 };

ssize_t pread64(int fd, void *buffer, size_t count, off64_t offset) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    if (count > SMALL) sleep(SECONDS);
    return real(fd, buffer, count, offset);
}
