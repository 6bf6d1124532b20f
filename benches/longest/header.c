/* Compares what was measured with the functions of the header: a new one can't be forgotten. */
#include "longest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a parameter of such a function begins with. Creating functions take pointers to handles. */
static const char *const HANDLE[] = {
    "struct rkv_page_table *", "struct rkv_cache *", "struct rkv_runner *", "struct rkv_plan *",
    "struct rkv_snapshot_cache *", "struct rkv_event_encoder *",
};
enum { HANDLE_COUNT = sizeof HANDLE / sizeof *HANDLE };

static char *whole_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    REQUIRE(file != NULL);
    REQUIRE(fseek(file, 0, SEEK_END) == 0);
    long size = ftell(file);
    REQUIRE(size > 0 && fseek(file, 0, SEEK_SET) == 0);
    char *text = allocate((size_t)size + 1, 1);
    REQUIRE(fread(text, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    return text;
}

static void blank(char *from, const char *to)
{
    for (; from < to; from++) {
        *from = ' ';
    }
}

/* Comments name functions, too; and what only tests are built with is no part of the library. */
static void leave_out(char *text, const char *opening, const char *closing)
{
    for (char *at = strstr(text, opening); at != NULL; at = strstr(at, opening)) {
        char *end = strstr(at, closing);
        REQUIRE(end != NULL);
        blank(at, end + strlen(closing));
    }
}

static bool takes_handle(const char *parameters, const char *end)
{
    for (int i = 0; i < HANDLE_COUNT; i++) {
        const char *found = strstr(parameters, HANDLE[i]);
        if (found != NULL && found < end) {
            return true;
        }
    }
    return false;
}

static bool was_measured(const char *name, const struct longest_row *rows, size_t row_count)
{
    for (size_t i = 0; i < row_count; i++) {
        if (strcmp(rows[i].function, name) == 0) {
            return true;
        }
    }
    return false;
}

bool covers_header(const char *path, const struct longest_row *rows, size_t row_count,
                   bool names_missing)
{
    char *text = whole_file(path);
    unsigned count = 0, missing = 0;
    leave_out(text, "/*", "*/");
    leave_out(text, "#if defined(RKV_FAULT_INJECTION)", "#endif");
    for (char *at = strstr(text, "RKV_API"); at != NULL; at = strstr(at + 1, "RKV_API")) {
        char *open = strchr(at, '('), *end = strchr(at, ';');
        if (open == NULL || end == NULL || open > end || !takes_handle(open, end)) {
            continue;
        }
        char name[64];
        char *begin = open;
        while (isalnum((unsigned char)begin[-1]) || begin[-1] == '_') {
            begin--;
        }
        snprintf(name, sizeof name, "%.*s", (int)(open - begin), begin);
        count++;
        if (!was_measured(name, rows, row_count)) {
            missing++;
            if (names_missing) {
                fprintf(stderr, "%s() takes a handle, and is not measured\n", name);
            }
        }
    }
    free(text);
    REQUIRE(count > 0);
    printf("%u functions of the header take a handle; %u of them are measured.\n", count,
           count - missing);
    return missing == 0;
}
