/* A disk that is slow to write: each larger write takes some seconds. */
enum { SMALL = 1 << 16, SECONDS = 6 };

ssize_t pwrite64(int fd, const void *buffer, size_t count, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pwrite64");
    if (count > SMALL) sleep(SECONDS);
    return real(fd, buffer, count, offset);
}
