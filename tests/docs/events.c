/* What the fragments of docs/events.md leave out: the engine around the loop. */
#include <radixkv.h>
#include <radixkv_net.h>
#include <stdbool.h>

extern volatile bool serving;
void check(rkv_status status);
double seconds_now(void);
void sleep_milliseconds(unsigned count);
void publish_events(rkv_cache *cache);
void name_tenant(rkv_event_encoder *encoder, rkv_namespace space);

void publish_events(rkv_cache *cache) {
    static uint8_t buffer[1 << 16];
#include "events-1.inc"
}

void name_tenant(rkv_event_encoder *encoder, rkv_namespace space) {
#include "events-2.inc"
}
