// What went wrong in a call, for the C of all files of this package.
#include <radixkv_net.h>
#include <stdbool.h>
#include <stdlib.h>

// A failed call; NULL is a success. The library keeps the message per thread, and a goroutine may
// be on another one at its next call: so it is fetched within the same crossing.
typedef struct rkvnetgo_failure {
	int32_t status;
	bool is_on_heap; // one allocation, the message behind the struct
	const char *message;
} rkvnetgo_failure;

#define RKVNETGO_WITHOUT_MESSAGE(name) {name, false, "no memory for the message of a failure"}

// What is said when there is no memory for a message: the status needs none. The last also stands
// for what this list does not know.
static rkvnetgo_failure rkvnetgo_without_message[] = {
	RKVNETGO_WITHOUT_MESSAGE(RKV_NET_STATUS_INVALID_ARGUMENT),
	RKVNETGO_WITHOUT_MESSAGE(RKV_NET_STATUS_INVALID_STATE),
	RKVNETGO_WITHOUT_MESSAGE(RKV_NET_STATUS_NETWORK),
	RKVNETGO_WITHOUT_MESSAGE(RKV_NET_STATUS_INTERNAL),
};

static inline rkvnetgo_failure *rkvnetgo_end(enum rkv_net_status status) {
	if (status == RKV_NET_STATUS_OK) {
		return NULL;
	}
	size_t bytes = rkv_net_last_error_message(NULL, 0);
	rkvnetgo_failure *failure = malloc(sizeof *failure + bytes);
	if (failure == NULL) {
		failure = rkvnetgo_without_message;
		while (failure->status != (int32_t)status && failure->status != RKV_NET_STATUS_INTERNAL) {
			failure++;
		}
		return failure;
	}
	char *message = (char *)(failure + 1);
	(void)rkv_net_last_error_message(message, bytes);
	*failure = (rkvnetgo_failure){(int32_t)status, true, message};
	return failure;
}

static inline void rkvnetgo_failure_free(rkvnetgo_failure *failure) {
	if (failure->is_on_heap) {
		free(failure);
	}
}
