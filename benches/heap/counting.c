/*
 * The C library's allocator with a counter: this program's malloc comes before the C library's,
 * also for the library under test. What is counted is what was asked for. (What mallinfo2() says
 * has the allocator's own rounding in it, which no counter of a library can know.)
 *
 * Before each allocation lie its size and how far in front of it the memory began.
 */
#include "heap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

struct before {
    size_t size, offset;
};

static _Atomic size_t in_use;

size_t heap_requested(void)
{
    return atomic_load(&in_use);
}

static struct before *before(void *memory)
{
    return (struct before *)memory - 1;
}

void *memalign(size_t alignment, size_t size)
{
    size_t offset = alignment > sizeof(struct before) ? alignment : sizeof(struct before);
    char *memory = size > SIZE_MAX / 2 ? NULL : __libc_memalign(offset, size + offset);
    if (memory == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    memory += offset;
    *before(memory) = (struct before){size, offset};
    atomic_fetch_add(&in_use, size);
    return memory;
}

void *malloc(size_t size)
{
    return memalign(sizeof(struct before), size);
}

void free(void *memory)
{
    if (memory != NULL) {
        atomic_fetch_sub(&in_use, before(memory)->size);
        __libc_free((char *)memory - before(memory)->offset);
    }
}

void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    void *memory = malloc(bytes);
    return memory == NULL ? NULL : memset(memory, 0, bytes);
}

void *realloc(void *memory, size_t size)
{
    void *moved = malloc(size);
    if (moved != NULL && memory != NULL) {
        size_t had = before(memory)->size;
        memcpy(moved, memory, had < size ? had : size);
        free(memory);
    }
    return moved;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    void *made = memalign(alignment, size);
    if (made == NULL) {
        return ENOMEM;
    }
    *memory = made;
    return 0;
}
