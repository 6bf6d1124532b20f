/* Preloaded, takes the lock away from readers: helgrind must then find races, which shows that it
 * looks at all. See scripts/sanitizers.sh. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

/* What this thread reads now: readers never nest, but they take other locks meanwhile. */
static __thread const pthread_rwlock_t *reading;

int pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
    reading = lock;
    return 0;
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t *lock) {
    return pthread_rwlock_rdlock(lock);
}

int pthread_rwlock_unlock(pthread_rwlock_t *lock) {
    if (reading == lock) {
        reading = NULL;
        return 0;
    }
    int (*unlock)(pthread_rwlock_t *);
    *(void **)&unlock = dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
    return unlock(lock);
}
