/* A directory for worlds that have one below memory. */
#define _XOPEN_SOURCE 700
#include "longest.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static char directory[512];

const char *directory_make(void)
{
    const char *above = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/radixkv-longest-XXXXXX",
             above != NULL ? above : "/tmp");
    REQUIRE(mkdtemp(directory) != NULL);
    return directory;
}

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *where)
{
    (void)what, (void)kind, (void)where;
    return remove(path);
}

void directory_remove(void)
{
    REQUIRE(nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
}
