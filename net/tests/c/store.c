/* T13: both headers in one program; what a store describes is what radixkv.h says. */
#include <radixkv.h>
#include <radixkv_net.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int is_so, const char *what, int line) {
    if (!is_so) {
        char text[256];
        rkv_net_last_error_message(text, sizeof text);
        fprintf(stderr, "line %d: %s (%s)\n", line, what, text);
        exit(1);
    }
}
#define CHECK(what) check(what, #what, __LINE__)

/* An item that a later cache could have. */
typedef struct wide_item {
    rkv_remote_item item;
    uint64_t more;
} wide_item;

static uint32_t answer(rkv_remote_call call, const rkv_remote_store *remote, size_t item_size) {
    uint8_t value[64] = {1};
    wide_item wide[2];
    memset(wide, 0, sizeof wide);
    rkv_remote_item *first = &wide[0].item;
    for (size_t i = 0; i < 2; i++) {
        rkv_remote_item *item = (rkv_remote_item *)((char *)first + i * item_size);
        item->bytes = value;
        item->byte_count = sizeof value;
    }
    call(remote->user_data, first, item_size, 2, 200);
    return first->answer;
}

int main(void) {
    /* Nobody listens there: a store needs no server to be made. */
    rkv_net_store_config config;
    memset(&config, 0, sizeof config);
    config.struct_size = sizeof config;
    config.url = "redis://127.0.0.1:1";
    rkv_net_store *store = NULL;
    CHECK(rkv_net_abi_version() >= 2);
    CHECK(rkv_net_store_create(NULL, &store) == RKV_NET_STATUS_INVALID_ARGUMENT);
    CHECK(rkv_net_store_create(&config, NULL) == RKV_NET_STATUS_INVALID_ARGUMENT);
    CHECK(rkv_net_store_create(&config, &store) == RKV_NET_STATUS_OK);
    CHECK(rkv_net_store_last_failure(store, NULL, 0) == 1);
    struct {
        rkv_remote_store remote;
        uint64_t more;
    } wide = {{0}, 7};
    rkv_remote_store *remote = &wide.remote;
    CHECK(rkv_net_store_describe(store, remote) == RKV_NET_STATUS_INVALID_ARGUMENT);
    CHECK(rkv_net_store_describe(store, NULL) == RKV_NET_STATUS_INVALID_ARGUMENT);
    remote->struct_size = sizeof wide;
    CHECK(rkv_net_store_describe(store, remote) == RKV_NET_STATUS_OK);
    CHECK(remote->struct_size == sizeof wide && wide.more == 0 && remote->user_data != NULL);
    rkv_remote_call calls[] = {remote->has, remote->get, remote->put, remote->remove};
    for (size_t i = 0; i < 4; i++) {
        CHECK(calls[i] != NULL);
        CHECK(answer(calls[i], remote, sizeof(rkv_remote_item)) == RKV_REMOTE_FAILED);
        CHECK(answer(calls[i], remote, sizeof(wide_item)) == RKV_REMOTE_FAILED);
    }
    char text[256] = "";
    CHECK(rkv_net_store_last_failure(store, text, sizeof text) == strlen(text) + 1);
    CHECK(strlen(text) > 0);
    rkv_net_store_destroy(store);
    rkv_net_store_destroy(NULL);
    return 0;
}
