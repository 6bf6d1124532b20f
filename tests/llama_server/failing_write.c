/* A disk that fails one larger write, the first. */
#include <stdatomic.h>

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
