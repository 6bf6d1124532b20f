// What went wrong in a call, for the C of all files of this package.
#include <radixkv_net.h>
#include <stdbool.h>
#include <stdlib.h>

// A failed call; NULL is a success. The library keeps the message per thread, and a goroutine may
// be on another one at its next call: so it is fetched within the same crossing.
typedef struct rkvnetgo_failure {
	int32_t status;
	bool is_on_heap;
	char message[];
} rkvnetgo_failure;

static rkvnetgo_failure rkvnetgo_no_memory = {RKV_NET_STATUS_INTERNAL, false};

static inline rkvnetgo_failure *rkvnetgo_end(enum rkv_net_status status) {
	if (status == RKV_NET_STATUS_OK) {
		return NULL;
	}
	size_t bytes = rkv_net_last_error_message(NULL, 0);
	rkvnetgo_failure *failure = malloc(sizeof *failure + bytes);
	if (failure == NULL) {
		return &rkvnetgo_no_memory;
	}
	failure->status = (int32_t)status;
	failure->is_on_heap = true;
	(void)rkv_net_last_error_message(failure->message, bytes);
	return failure;
}

static inline void rkvnetgo_failure_free(rkvnetgo_failure *failure) {
	if (failure->is_on_heap) {
		free(failure);
	}
}

static inline const char *rkvnetgo_message(const rkvnetgo_failure *failure) {
	return failure->is_on_heap ? failure->message : "no memory for the message";
}
