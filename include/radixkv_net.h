/**
 * @file radixkv_net.h
 * @brief Publishes KV events over ZeroMQ; keeps pages that caches share on a server.
 *
 * libradixkv_net.so takes bytes, such as rkv_event_encoder_encode() of radixkv.h makes them, and
 * needs neither that header nor libradixkv.so; only rkv_net_store_describe() fills a struct of that
 * header. docs/events.md and docs/tiers.md say how the two work together.
 *
 * Generated from net/src/capi.rs and net/src/store/capi.rs by cbindgen: edit there, then run `make header`.
 *
 * Conventions are those of radixkv.h: functions return a status, of which zero is success;
 * rkv_net_last_error_message() names the argument; a call that fails changes nothing; struct_size
 * first, fields that a caller doesn't know stay zero; a handle is good in the process that made it.
 * One thing is different: when the host is out of memory, the process ends.
 */

#ifndef RADIXKV_NET_H
#define RADIXKV_NET_H



#include <stddef.h>
#include <stdint.h>

/* Of radixkv.h. */
struct rkv_remote_store;

/**
 * Version of the ABI that this header describes; grows by one with every addition.
 */
#define RKV_NET_ABI_VERSION 2

/**
 * Flag of rkv_net_publisher_config: connect to the endpoint, where a subscriber is bound that
 * hears many publishers. Without it the publisher binds, and subscribers connect.
 */
#define RKV_NET_PUBLISHER_CONNECT 1

/**
 * How a call ended. What rkv_status of radixkv.h has too has the same number. Expect others.
 */
typedef enum rkv_net_status {
    /**
     * Done.
     */
    RKV_NET_STATUS_OK = 0,
    /**
     * An argument is NULL, out of range or inconsistent; the message names it.
     */
    RKV_NET_STATUS_INVALID_ARGUMENT = 1,
    /**
     * The handle is from before fork().
     */
    RKV_NET_STATUS_INVALID_STATE = 6,
    /**
     * The system refused a socket or a thread: an address in use, no such host. The message says
     * what it said.
     */
    RKV_NET_STATUS_NETWORK = 200,
    /**
     * A bug of this library; please report it.
     */
    RKV_NET_STATUS_INTERNAL = 900,
} rkv_net_status;

/**
 * Publishes batches of KV events over ZeroMQ, as vLLM does: a PUB socket, and a ROUTER socket at
 * which subscribers ask for batches that they missed. It has a thread of its own.
 */
typedef struct rkv_net_publisher rkv_net_publisher;

/**
 * A store that caches share: pages by key, on a server of Redis or Valkey, or in a bucket of S3.
 */
typedef struct rkv_net_store rkv_net_store;

/**
 * What a publisher is made of. All zero but for struct_size and endpoint is what vLLM does.
 */
typedef struct rkv_net_publisher_config {
    /**
     * sizeof(rkv_net_publisher_config).
     */
    uint32_t struct_size;
    /**
     * RKV_NET_PUBLISHER_CONNECT or 0.
     */
    uint32_t flags;
    /**
     * Where to publish: "tcp://HOST:PORT", with * as the host for every interface and port 0 for
     * any that is free, or "ipc://PATH".
     */
    const char *endpoint;
    /**
     * Where subscribers ask for batches again, likewise; NULL for nowhere. Always bound.
     */
    const char *replay_endpoint;
    /**
     * The first frame of each message, by which subscribers choose; NULL for an empty one.
     */
    const char *topic;
    /**
     * Added to both ports, unless they are 0; behind a path it is "_dp" and the rank.
     */
    uint32_t data_parallel_rank;
    /**
     * Batches that are kept in memory for replays; 0 for 10,000. Without replay_endpoint none are.
     */
    uint32_t replay_batch_limit;
    /**
     * Batches that wait for the thread at most; 0 for 100,000.
     */
    uint32_t queue_batch_limit;
    /**
     * Zero.
     */
    uint32_t reserved;
} rkv_net_publisher_config;

/**
 * What a publisher counted.
 */
typedef struct rkv_net_publisher_stats {
    /**
     * sizeof(rkv_net_publisher_stats).
     */
    uint32_t struct_size;
    /**
     * The port that is bound; 0 for none.
     */
    uint16_t port;
    /**
     * That of replays; 0 for none.
     */
    uint16_t replay_port;
    /**
     * Batches that were published: the number of the next one.
     */
    uint64_t published_batch_count;
    /**
     * Their bytes.
     */
    uint64_t published_byte_count;
    /**
     * Those of them that found the queue full. They are kept for replays like all others. What a
     * subscriber has no room for, or what was on its way when it went, is not counted.
     */
    uint64_t dropped_batch_count;
    /**
     * Batches in the queue.
     */
    uint64_t queued_batch_count;
    /**
     * Batches that can be replayed.
     */
    uint64_t replay_batch_count;
    /**
     * Requests for a replay.
     */
    uint64_t replay_request_count;
} rkv_net_publisher_stats;

/**
 * Where a store is. All zero but for struct_size and url is a good beginning.
 */
typedef struct rkv_net_store_config {
    /**
     * sizeof(rkv_net_store_config).
     */
    uint32_t struct_size;
    /**
     * Zero.
     */
    uint32_t flags;
    /**
     * "redis://HOST:PORT", with USER:PASSWORD@ and /DATABASE as they are needed, the same with
     * valkey://, "rediss://" or "valkeys://" over TLS, or "unix://PATH" for its socket;
     * "s3://BUCKET" or "s3://BUCKET/FOLDER".
     */
    const char *url;
    /**
     * What each key begins with; NULL for "radixkv/".
     */
    const char *prefix;
    /**
     * For S3: where it is, if not at Amazon, as "http://HOST:PORT"; NULL for what the environment
     * says. From there come region, credentials and all else: AWS_REGION, AWS_ACCESS_KEY_ID,
     * AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT and so on. They have to permit s3:GetObject,
     * s3:PutObject, s3:DeleteObject and, on the bucket, s3:ListBucket: without that S3 forbids to
     * ask for what isn't there.
     */
    const char *endpoint;
    /**
     * For Redis: seconds after which a page goes that was written, 2^40 at most; 0 for never.
     */
    uint64_t ttl_s;
    /**
     * For Redis: connections that read, and as many that write, 1 to 256; 0 for 4.
     */
    uint32_t connection_count;
    /**
     * Zero.
     */
    uint32_t reserved;
    /**
     * For Redis over TLS: a file of certificates, in PEM, of whom the server's may be; read during
     * the call. NULL for those of the system.
     */
    const char *ca_file;
} rkv_net_store_config;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * ABI version of the loaded library.
 *
 * @return the loaded library's RKV_NET_ABI_VERSION
 * @par Thread safety
 * any thread, any time
 */
uint32_t rkv_net_abi_version(void);

/**
 * The message of the last failure of the calling thread, cut to fit; empty when there was none.
 *
 * @param buffer receives the text and a NUL; may be NULL when capacity is 0
 * @param capacity room in bytes
 * @return bytes that the whole message needs, with its NUL
 * @par Thread safety
 * any thread, any time
 */
size_t rkv_net_last_error_message(char *buffer, size_t capacity);

/**
 * Creates a publisher: binds its sockets and starts its thread.
 *
 * @param config what it is made of
 * @param out_publisher receives the publisher, owned by the caller
 * @return RKV_NET_STATUS_OK; RKV_NET_STATUS_INVALID_ARGUMENT, e.g. for an endpoint that is none;
 * RKV_NET_STATUS_NETWORK when the system refuses it
 * @par Cost
 * waits until the sockets are bound; with RKV_NET_PUBLISHER_CONNECT its thread goes on to look for
 * the subscriber, which may come later, and go and come back
 * @par Thread safety
 * any thread
 */
enum rkv_net_status rkv_net_publisher_create(const struct rkv_net_publisher_config *config,
                                             struct rkv_net_publisher **out_publisher);

/**
 * Destroys a publisher, when what waits in its queue was given to the sockets: a subscriber that
 * reads gets it within 100 milliseconds, or not. NULL is allowed and does nothing. In a child
 * process nothing happens.
 *
 * @param publisher the publisher
 * @par Cost
 * waits for its thread, a tenth of a second or two
 * @par Thread safety
 * the caller must be the last user of this handle
 */
void rkv_net_publisher_destroy(struct rkv_net_publisher *publisher);

/**
 * Publishes a batch: three frames, the topic, the number with 8 bytes, the highest first, and the
 * payload. Numbers begin with 0, and each is one more than the one before.
 *
 * Never waits for a subscriber. When the queue is full the batch has its number and can be
 * replayed, but is not sent: dropped_batch_count counts it, and subscribers see the gap. A
 * subscriber that is slow, or dead and not found out yet, has room for 100,000 batches; what comes
 * then is not sent to it, and it sees that as a gap too. On Linux one that takes nothing over TCP
 * for three minutes of what is on its way to it is sent away, and what waited for it is not sent.
 *
 * @param publisher the publisher
 * @param payload the bytes, which are copied
 * @param byte_count how many
 * @param out_sequence receives the number; may be NULL
 * @return RKV_NET_STATUS_OK, also when nobody listens; RKV_NET_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(byte_count), a copy; a lock for less than a microsecond, and no system call but to wake the
 * thread
 * @par Thread safety
 * any thread, any number at once
 */
enum rkv_net_status rkv_net_publisher_publish(struct rkv_net_publisher *publisher,
                                              const uint8_t *payload,
                                              size_t byte_count,
                                              uint64_t *out_sequence);

/**
 * What a publisher counted.
 *
 * @param publisher the publisher
 * @param out_stats receives it; set its struct_size first
 * @return RKV_NET_STATUS_OK; RKV_NET_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); a lock for less than a microsecond
 * @par Thread safety
 * any thread, any number at once
 */
enum rkv_net_status rkv_net_publisher_read_stats(const struct rkv_net_publisher *publisher,
                                                 struct rkv_net_publisher_stats *out_stats);

/**
 * Creates a store. It is not tried whether there is a server: one that comes later is found.
 *
 * @param config where it is
 * @param out_store receives the store, owned by the caller
 * @return RKV_NET_STATUS_OK; RKV_NET_STATUS_INVALID_ARGUMENT, e.g. for a URL that is none;
 * RKV_NET_STATUS_NETWORK when the system refuses a thread
 * @par Cost
 * starts two threads
 * @par Thread safety
 * any thread
 */
enum rkv_net_status rkv_net_store_create(const struct rkv_net_store_config *config,
                                         struct rkv_net_store **out_store);

/**
 * Destroys a store. Caches that have it below them must have been destroyed, or their tiers
 * detached. NULL is allowed and does nothing. In a child process nothing happens.
 *
 * @param store the store
 * @par Cost
 * waits for its threads, a tenth of a second at most
 * @par Thread safety
 * the caller must be the last user of this handle
 */
void rkv_net_store_destroy(struct rkv_net_store *store);

/**
 * Writes what a cache calls: for rkv_tier_config.remote of radixkv.h. The store stays the
 * caller's, and stays until the tiers are detached. Several caches may have it.
 *
 * @param store the store
 * @param out_remote receives the functions; set its struct_size first
 * @return RKV_NET_STATUS_OK; RKV_NET_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread, any number at once
 */
enum rkv_net_status rkv_net_store_describe(const struct rkv_net_store *store,
                                           struct rkv_remote_store *out_remote);

/**
 * Why a call to the server failed last, on whichever thread, cut to fit; empty when none has. The
 * cache counts failures, and goes on without it: this is for a log.
 *
 * @param store the store
 * @param buffer receives the text and a NUL; may be NULL when capacity is 0
 * @param capacity room in bytes
 * @return bytes that the whole text needs, with its NUL; 0 when store is no store
 * @par Cost
 * O(length); a lock for a moment
 * @par Thread safety
 * any thread, any number at once
 */
size_t rkv_net_store_last_failure(const struct rkv_net_store *store, char *buffer, size_t capacity);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RADIXKV_NET_H */
