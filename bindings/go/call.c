#include "call.h"

#include <stdlib.h>

/* One allocation holds the struct and, behind it, the message. */
rkvgo_failure *rkvgo_failure_copy(rkv_status status) {
    size_t bytes = rkv_last_error_message(NULL, 0);
    rkvgo_failure *failure = calloc(1, sizeof *failure + bytes);
    if (failure == NULL) {
        return NULL;
    }
    char *message = (char *)(failure + 1);
    (void)rkv_last_error_message(message, bytes);
    failure->message = message;
    if (status == RKV_STATUS_OUT_OF_PAGES) {
        failure->shortage.struct_size = sizeof failure->shortage;
        failure->has_shortage = rkv_last_shortage(&failure->shortage) == RKV_STATUS_OK;
    }
    return failure;
}

void rkvgo_failure_free(rkvgo_failure *failure) {
    free(failure);
}
