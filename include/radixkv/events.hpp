/**
 * @file events.hpp
 * @brief KV events: what comes into a cache and leaves it, as bytes that routers read.
 */

#ifndef RADIXKV_EVENTS_HPP
#define RADIXKV_EVENTS_HPP

#include "cache.hpp"
#include "namespace.hpp"
#include "span.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rkv {

/// A payload, and what it has.
struct EventBatch {
    rkv_event_batch info = sized<rkv_event_batch>();
    /// Good until the encoder makes the next one.
    span<const std::uint8_t> payload;

    /// Whether there is more to tell right now.
    [[nodiscard]] bool has_more() const noexcept { return (info.flags & RKV_EVENTS_MORE) != 0; }
};

/// Turns the journal of a cache into batches of events. Several threads may use one, but not
/// encode() at once: it has one payload.
class EventEncoder {
public:
    /// Owns nothing.
    EventEncoder() noexcept = default;
    /// Takes over a handle that C code created.
    explicit EventEncoder(rkv_event_encoder* owned) noexcept : handle_(owned) {}
    /// rkv_event_encoder_create() as most routers expect it.
    explicit EventEncoder(const Cache& cache) { create(cache, nullptr); }
    /// rkv_event_encoder_create(). Begin with sized<rkv_event_encoder_config>().
    EventEncoder(const Cache& cache, const rkv_event_encoder_config& config) {
        create(cache, &config);
    }

    [[nodiscard]] rkv_event_encoder* get() const noexcept { return handle_.get(); }
    [[nodiscard]] explicit operator bool() const noexcept { return get() != nullptr; }
    /// Gives the handle up, without rkv_event_encoder_destroy().
    [[nodiscard]] rkv_event_encoder* release() noexcept { return handle_.release(); }
    /// rkv_event_encoder_destroy() now.
    void reset() noexcept { handle_.reset(); }

    /// rkv_event_encoder_name_namespace(), both texts as they are.
    void name_namespace(const Namespace& ns, const char* lora_name, const char* cache_salt) {
        check(rkv_event_encoder_name_namespace(get(), ns.get(), lora_name, cache_salt));
    }
    /// rkv_event_encoder_encode(): a payload of `limit` bytes at most unless one event has more,
    /// and none when there is nothing to tell yet. `timestamp` is in seconds.
    [[nodiscard]] EventBatch encode(double timestamp, std::size_t limit = std::size_t{1} << 16) {
        EventBatch batch;
        for (;;) {
            if (payload_.size() < limit) payload_.resize(limit);
            batch.info = sized<rkv_event_batch>();
            // Without a buffer it would be the question how much the next event needs.
            std::uint8_t unused = 0;
            std::uint8_t* room = detail::present(span<std::uint8_t>(payload_), unused);
            const rkv_status status =
                rkv_event_encoder_encode(get(), timestamp, room, limit, &batch.info);
            if (status == RKV_STATUS_BUFFER_TOO_SMALL) {
                limit = static_cast<std::size_t>(batch.info.byte_count);
                continue;
            }
            check(status);
            batch.payload = {payload_.data(), static_cast<std::size_t>(batch.info.byte_count)};
            return batch;
        }
    }
    /// rkv_event_encoder_repeat(): all that is held once more, when what was told is taken back.
    void repeat() { check(rkv_event_encoder_repeat(get())); }

private:
    struct Destroy {
        void operator()(rkv_event_encoder* encoder) const noexcept {
            rkv_event_encoder_destroy(encoder);
        }
    };

    std::unique_ptr<rkv_event_encoder, Destroy> handle_;
    std::vector<std::uint8_t> payload_;

    void create(const Cache& cache, const rkv_event_encoder_config* config) {
        rkv_event_encoder* encoder = nullptr;
        check(rkv_event_encoder_create(cache.get(), config, &encoder));
        handle_.reset(encoder);
    }
};

}  // namespace rkv

#endif  // RADIXKV_EVENTS_HPP
