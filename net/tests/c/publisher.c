/* Every function of radixkv_net.h, called as a C program does: create, publish, count, refuse. */
#include "radixkv_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                  \
    do {                                                                  \
        if (!(condition)) {                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            failures++;                                                   \
        }                                                                 \
    } while (0)

/* A process that ends may still call, and fail: its thread's message is gone by then. */
static void at_exit(void) {
    rkv_net_publisher *none = NULL;
    char message[16] = "unset";
    if (rkv_net_publisher_create(NULL, &none) != RKV_NET_STATUS_INVALID_ARGUMENT ||
        rkv_net_last_error_message(message, sizeof message) != 1 || message[0] != 0) {
        _Exit(3);
    }
}

int main(void) {
    char message[128];
    rkv_net_publisher_config config;
    rkv_net_publisher_stats stats;
    rkv_net_publisher *publisher = NULL;
    uint64_t number = 77;
    CHECK(atexit(at_exit) == 0);
    memset(&config, 0, sizeof config);
    memset(&stats, 0, sizeof stats);
    CHECK(rkv_net_abi_version() == RKV_NET_ABI_VERSION);
    CHECK(rkv_net_last_error_message(NULL, 0) == 1);

    config.struct_size = sizeof config;
    CHECK(rkv_net_publisher_create(&config, &publisher) == RKV_NET_STATUS_INVALID_ARGUMENT);
    CHECK(rkv_net_last_error_message(message, sizeof message) == strlen(message) + 1);
    CHECK(strstr(message, "config.endpoint") != NULL && publisher == NULL);
    CHECK(rkv_net_last_error_message(message, 4) > 4 && strlen(message) == 3);

    config.endpoint = "tcp://127.0.0.1:0";
    config.replay_endpoint = "tcp://127.0.0.1:0";
    config.topic = "kv";
    CHECK(rkv_net_publisher_create(&config, &publisher) == RKV_NET_STATUS_OK);
    CHECK(rkv_net_publisher_publish(publisher, (const uint8_t *)"abc", 3, &number) ==
          RKV_NET_STATUS_OK);
    CHECK(number == 0);
    CHECK(rkv_net_publisher_publish(publisher, NULL, 0, NULL) == RKV_NET_STATUS_OK);
    stats.struct_size = 4;
    CHECK(rkv_net_publisher_read_stats(publisher, &stats) == RKV_NET_STATUS_INVALID_ARGUMENT);
    CHECK(stats.published_batch_count == 0);
    stats.struct_size = sizeof stats;
    CHECK(rkv_net_publisher_read_stats(publisher, &stats) == RKV_NET_STATUS_OK);
    CHECK(stats.published_batch_count == 2 && stats.published_byte_count == 3);
    CHECK(stats.port != 0 && stats.replay_port != 0 && stats.port != stats.replay_port);
    rkv_net_publisher_destroy(publisher);
    rkv_net_publisher_destroy(NULL);
    return failures != 0;
}
