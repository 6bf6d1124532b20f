#include "call.h"

#include <stdlib.h>

static const char no_message[] = "no memory for the message of a failure";

#define WITHOUT_MESSAGE(name)                                                                      \
    { .status = name, .message = no_message }

/* What is said when there is no memory for a message: the status needs none. Not the thread's, for
 * Go may read it on another one. The first also stands for what this list does not know. */
static rkvgo_failure without_message[] = {
    WITHOUT_MESSAGE(RKV_STATUS_OUT_OF_MEMORY),
    WITHOUT_MESSAGE(RKV_STATUS_INVALID_ARGUMENT),
    WITHOUT_MESSAGE(RKV_STATUS_STALE_NODE),
    WITHOUT_MESSAGE(RKV_STATUS_STALE_SEQUENCE),
    WITHOUT_MESSAGE(RKV_STATUS_STALE_LOCK),
    WITHOUT_MESSAGE(RKV_STATUS_BUFFER_TOO_SMALL),
    WITHOUT_MESSAGE(RKV_STATUS_INVALID_STATE),
    WITHOUT_MESSAGE(RKV_STATUS_UNSUPPORTED),
    WITHOUT_MESSAGE(RKV_STATUS_STALE_PIN),
    WITHOUT_MESSAGE(RKV_STATUS_STALE_TICKET),
    WITHOUT_MESSAGE(RKV_STATUS_OUT_OF_PAGES),
    WITHOUT_MESSAGE(RKV_STATUS_OUT_OF_SLOTS),
    WITHOUT_MESSAGE(RKV_STATUS_BUSY),
    WITHOUT_MESSAGE(RKV_STATUS_PENDING),
    WITHOUT_MESSAGE(RKV_STATUS_DEVICE),
    WITHOUT_MESSAGE(RKV_STATUS_STORAGE),
    WITHOUT_MESSAGE(RKV_STATUS_INTERNAL),
    WITHOUT_MESSAGE(RKV_STATUS_POISONED),
    WITHOUT_MESSAGE(RKV_STATUS_CORRUPT),
};

static rkvgo_failure *of_status(rkv_status status) {
    size_t at = sizeof without_message / sizeof without_message[0];
    while (at > 1) {
        if (without_message[--at].status == (int32_t)status) {
            return &without_message[at];
        }
    }
    return &without_message[0];
}

/* One allocation holds the struct and, behind it, the message. */
rkvgo_failure *rkvgo_failure_copy(rkv_status status) {
    size_t bytes = rkv_last_error_message(NULL, 0);
    rkvgo_failure *failure = calloc(1, sizeof *failure + bytes);
    if (failure == NULL) {
        return of_status(status);
    }
    char *message = (char *)(failure + 1);
    (void)rkv_last_error_message(message, bytes);
    failure->status = (int32_t)status;
    failure->message = message;
    if (status == RKV_STATUS_OUT_OF_PAGES) {
        failure->shortage.struct_size = sizeof failure->shortage;
        failure->has_shortage = rkv_last_shortage(&failure->shortage) == RKV_STATUS_OK;
    }
    return failure;
}

rkvgo_failure *rkvgo_no_memory(void) { return of_status(RKV_STATUS_OUT_OF_MEMORY); }

void rkvgo_failure_free(rkvgo_failure *failure) {
    if (failure->message != no_message) {
        free(failure);
    }
}
