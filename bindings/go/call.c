#include "call.h"

#include <stdlib.h>

/* What is said when there is no memory to say what failed. */
static rkvgo_failure no_memory = {
    .status = RKV_STATUS_OUT_OF_MEMORY,
    .message = "no memory for the message of a failure",
};

/* One allocation holds the struct and, behind it, the message. */
rkvgo_failure *rkvgo_failure_copy(rkv_status status) {
    size_t bytes = rkv_last_error_message(NULL, 0);
    rkvgo_failure *failure = calloc(1, sizeof *failure + bytes);
    if (failure == NULL) {
        return &no_memory;
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

rkvgo_failure *rkvgo_no_memory(void) { return &no_memory; }

void rkvgo_failure_free(rkvgo_failure *failure) {
    if (failure != &no_memory) {
        free(failure);
    }
}
