/* M03: a child waits for no thread of its parent that was about to find the kernels. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

enum { PATIENCE_SECONDS = 20 };

static void *ask(void *nothing) {
    CHECK(rkv_features() != 0);
    return nothing;
}

static void m03_a_child_finds_the_kernels_itself(void) {
    char folder[] = "/tmp/rkv_first_call_XXXXXX", sources[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(sources, sizeof sources, "%s/sources", folder);
    CHECK(mkfifo(sources, 0600) == 0);
    CHECK(setenv("RADIXKV_KERNELS", folder, 1) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ask, NULL) == 0);
    int writer = -1;
    while (writer < 0) { /* until the thread reads there, and waits */
        writer = open(sources, O_WRONLY | O_NONBLOCK);
        CHECK(writer >= 0 || errno == ENXIO);
        sched_yield();
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_SECONDS);
        (void)setenv("RADIXKV_KERNELS", "", 1);
        _exit(rkv_features() != 0 ? 0 : 1);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0); /* else by alarm(): it hung */
    CHECK(close(writer) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(unlink(sources) == 0 && rmdir(folder) == 0);
}

int main(void) {
    RUN(m03_a_child_finds_the_kernels_itself);
    return check_result();
}
