/* A progress bar on stderr; without a terminal, one line for each finished tenth. */
#ifndef REPLAY_PROGRESS_H
#define REPLAY_PROGRESS_H

#include <stdint.h>

typedef struct progress {
    uint64_t total, done;
    uint64_t start, last_drawn; /* nanoseconds */
    unsigned tenths;            /* reported so far, without a terminal */
    int terminal;
    char label[64];
} progress;

void progress_start(progress *bar, uint64_t total);
void progress_label(progress *bar, const char *label);
void progress_step(progress *bar, uint64_t amount);

/* Makes room for other output; the next step draws the bar again. */
void progress_clear(progress *bar);

#endif
