#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "replay.h"

#define BAR_WIDTH 30
#define REDRAW_NANOSECONDS 100000000u

void progress_start(progress *bar, uint64_t total)
{
    memset(bar, 0, sizeof *bar);
    bar->total = total > 0 ? total : 1;
    bar->start = clock_nanoseconds();
    bar->terminal = isatty(STDERR_FILENO);
}

void progress_label(progress *bar, const char *label)
{
    snprintf(bar->label, sizeof bar->label, "%s", label);
}

void progress_clear(progress *bar)
{
    if (bar->terminal && bar->last_drawn > 0) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
        bar->last_drawn = 0;
    }
}

static void draw(const progress *bar, double seconds)
{
    char cells[BAR_WIDTH + 1] = "";
    double part = (double)bar->done / (double)bar->total;
    int full = (int)(part * BAR_WIDTH);
    for (int i = 0; i < BAR_WIDTH; i++)
        cells[i] = i < full ? '#' : '.';
    fprintf(stderr, "\r\033[K[%s] %3.0f %%  %.0f s left  %s", cells, 100 * part,
            seconds * (1 - part) / (part > 0 ? part : 1), bar->label);
    fflush(stderr);
}

void progress_step(progress *bar, uint64_t amount)
{
    uint64_t now = clock_nanoseconds();
    double seconds = (double)(now - bar->start) / 1e9;
    bar->done += amount;
    if (bar->terminal) {
        if (now - bar->last_drawn >= REDRAW_NANOSECONDS) {
            draw(bar, seconds);
            bar->last_drawn = now;
        }
        return;
    }
    unsigned tenths = (unsigned)(10 * bar->done / bar->total);
    if (tenths > bar->tenths) {
        bar->tenths = tenths;
        fprintf(stderr, "%3u %% after %.1f s: %s\n", tenths * 10, seconds, bar->label);
    }
}
