/* Memory that runs out in a part of the process: a preloaded library, for test_placed_memory.py. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

/* Whose requests are refused: those of the code in between. */
static uintptr_t first, end;
/* Requests of this thread that are granted before; below 0 all are. */
static __thread long granted = -1;
static __thread long refused_count;
static __thread int is_once;

void failing_code(uintptr_t from, uintptr_t to) { first = from, end = to; }

void failing_begin(long after, int once) { granted = after, is_once = once, refused_count = 0; }

long failing_end(void) {
    granted = -1;
    return refused_count;
}

static int is_refused(void *caller) {
    uintptr_t from = (uintptr_t)caller;
    if (granted < 0 || from < first || from >= end) return 0;
    if (granted > 0) {
        granted--;
        return 0;
    }
    if (is_once) granted = -1;
    refused_count++;
    return 1;
}

#define REFUSED is_refused(__builtin_return_address(0))

void *malloc(size_t size) { return REFUSED ? NULL : __libc_malloc(size); }

void *calloc(size_t count, size_t size) { return REFUSED ? NULL : __libc_calloc(count, size); }

void *realloc(void *old, size_t size) { return REFUSED ? NULL : __libc_realloc(old, size); }

void *aligned_alloc(size_t alignment, size_t size) {
    return REFUSED ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **into, size_t alignment, size_t size) {
    if (REFUSED) return ENOMEM;
    *into = __libc_memalign(alignment, size);
    return *into ? 0 : ENOMEM;
}
