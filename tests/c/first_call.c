/* M03: a child waits for no thread of its parent that was about to find the kernels. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

enum { PATIENCE_MS = 60000 };

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
    int answer[2];
    CHECK(pipe(answer) == 0);
    pid_t child = fork();
    if (child == 0) {
        (void)setenv("RADIXKV_KERNELS", "", 1);
        uint8_t found = rkv_features() != 0;
        while (write(answer[1], &found, 1) == 1) {
            pause(); /* until it is killed: what the thread had is lost here, and no leak */
        }
        _exit(1);
    }
    struct pollfd waiting = {answer[0], POLLIN, 0};
    uint8_t found = 0;
    CHECK(child > 0 && poll(&waiting, 1, PATIENCE_MS) == 1); /* else it hangs */
    CHECK(read(answer[0], &found, 1) == 1 && found == 1);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    CHECK(close(answer[0]) == 0 && close(answer[1]) == 0);
    CHECK(close(writer) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(unlink(sources) == 0 && rmdir(folder) == 0);
}

int main(void) {
    RUN(m03_a_child_finds_the_kernels_itself);
    return check_result();
}
