/* The smallest test framework that says which promise broke, and in which test. */
#ifndef RKV_TESTS_CHECK_H
#define RKV_TESTS_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "radixkv.h"

static int check_failures;
static const char *check_test = "main";

/* Stops printing, not counting, when one broken thing fails a loop of checks. */
#define CHECK_PRINT_LIMIT 40

static inline bool check_report(bool good, const char *file, int line, const char *what) {
    if (!good && check_failures++ < CHECK_PRINT_LIMIT) {
        fprintf(stderr, "%s:%d: in %s: %s\n", file, line, check_test, what);
    }
    return good;
}

static inline bool check_equal(uint64_t got, uint64_t want, const char *file, int line,
                               const char *what) {
    if (!check_report(got == want, file, line, what) && check_failures < CHECK_PRINT_LIMIT) {
        fprintf(stderr, "    got %" PRIu64 ", expected %" PRIu64 "\n", got, want);
    }
    return got == want;
}

static inline bool check_status(rkv_status got, rkv_status want, const char *file, int line,
                                const char *what) {
    if (!check_report(got == want, file, line, what) && check_failures < CHECK_PRINT_LIMIT) {
        char message[256] = "";
        (void)rkv_last_error_message(message, sizeof message);
        fprintf(stderr, "    got %s, expected %s; last message: %s\n",
                rkv_status_name((int32_t)got), rkv_status_name((int32_t)want), message);
    }
    return got == want;
}

/* Whether the calling thread's last error message contains a word. */
static inline bool message_names(const char *word) {
    char message[512] = "";
    (void)rkv_last_error_message(message, sizeof message);
    bool found = strstr(message, word) != NULL;
    if (!found && check_failures < CHECK_PRINT_LIMIT) {
        fprintf(stderr, "    \"%s\" is not in the message: %s\n", word, message);
    }
    return found;
}

#define CHECK(condition) check_report((condition), __FILE__, __LINE__, #condition)
#define CHECK_EQ(got, want)                                                                       \
    check_equal((uint64_t)(got), (uint64_t)(want), __FILE__, __LINE__, #got " == " #want)
#define CHECK_STATUS(call, want) check_status((call), (want), __FILE__, __LINE__, #call)
#define CHECK_OK(call) CHECK_STATUS(call, RKV_STATUS_OK)

/* Runs one test function and remembers its name for the reports. */
#define RUN(test)                                                                                 \
    do {                                                                                          \
        check_test = #test;                                                                       \
        test();                                                                                   \
    } while (0)

static inline int check_result(void) {
    if (check_failures > 0) {
        fprintf(stderr, "%d checks failed\n", check_failures);
    }
    return check_failures != 0;
}

#endif
