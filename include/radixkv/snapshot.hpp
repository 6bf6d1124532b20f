/**
 * @file snapshot.hpp
 * @brief The snapshot cache: states of an engine by the tokens that led to them.
 */

#ifndef RADIXKV_SNAPSHOT_HPP
#define RADIXKV_SNAPSHOT_HPP

#include "callback.hpp"
#include "namespace.hpp"
#include "span.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rkv {

/// Owns one pin on a snapshot: rkv_snapshot_cache_release() at the end. Made by
/// SnapshotCache::match() and SnapshotFetch::take(); empty for a miss. It may outlive the
/// SnapshotCache.
class SnapshotPin {
public:
    /// Owns nothing.
    SnapshotPin() noexcept = default;
    SnapshotPin(SnapshotPin&& other) noexcept
        : cache_(other.cache_), found_(std::exchange(other.found_, none())) {}
    SnapshotPin& operator=(SnapshotPin&& other) noexcept {
        SnapshotPin taken(std::move(other));
        std::swap(cache_, taken.cache_);
        std::swap(found_, taken.found_);
        return *this;
    }
    ~SnapshotPin() {
        if (get() == 0) return;
        // A destructor has nobody to tell; reset() is for those who want to know.
        [[maybe_unused]] const rkv_status status = rkv_snapshot_cache_release(cache_, get());
    }

    [[nodiscard]] rkv_pin_id get() const noexcept { return found_.pin; }
    [[nodiscard]] explicit operator bool() const noexcept { return get() != 0; }
    /// Gives the pin up, without rkv_snapshot_cache_release().
    [[nodiscard]] rkv_pin_id release() noexcept {
        return std::exchange(found_, none()).pin;
    }
    /// rkv_snapshot_cache_release() now. An empty one does nothing.
    void reset() {
        if (get() == 0) return;
        check(rkv_snapshot_cache_release(cache_, get()));
        (void)release();
    }

    /// The snapshot.
    [[nodiscard]] void* data() const noexcept { return found_.data; }
    /// What it takes, as its insert said.
    [[nodiscard]] std::uint64_t size_bytes() const noexcept { return found_.size_bytes; }
    /// Tokens that it covers.
    [[nodiscard]] std::size_t token_count() const noexcept {
        return static_cast<std::size_t>(found_.token_count);
    }
    /// Those that the query begins with: fewer only after a match of trimmable ones.
    [[nodiscard]] std::size_t common_token_count() const noexcept {
        return static_cast<std::size_t>(found_.common_token_count);
    }
    /// Whether these are all tokens of the query. False of what SnapshotFetch::take() gives:
    /// compare token_count().
    [[nodiscard]] bool full_hit() const noexcept { return found_.full_hit != 0; }
    /// What the model predicts after them.
    [[nodiscard]] std::optional<std::uint32_t> next_token() const noexcept {
        return found_.has_next_token != 0 ? std::optional(found_.next_token) : std::nullopt;
    }
    /// Tokens in common with what SnapshotCache::fetch() would bring, when they are more; else 0.
    /// A miss has them too.
    [[nodiscard]] std::size_t fetchable_token_count() const noexcept {
        return static_cast<std::size_t>(found_.fetchable_token_count);
    }
    /// Whether data() is a copy that the cache read from below memory: its first part, not what
    /// an insert was given.
    [[nodiscard]] bool is_copy() const noexcept { return found_.is_copy != 0; }
    /// rkv_snapshot_cache_read_parts(), for which the SnapshotCache must still be there: good until
    /// the pin ends.
    [[nodiscard]] std::vector<rkv_snapshot_part> parts() const {
        // An empty one keeps no cache alive: there may be none any more.
        const rkv_snapshot_cache* cache = get() != 0 ? cache_ : nullptr;
        return detail::read<rkv_snapshot_part>(
            [&](rkv_snapshot_part* into, std::size_t capacity, std::size_t* count) {
                return rkv_snapshot_cache_read_parts(cache, get(), into,
                                                     sizeof(rkv_snapshot_part), capacity, count);
            });
    }

private:
    friend class SnapshotCache;
    friend class SnapshotFetch;
    SnapshotPin(rkv_snapshot_cache* cache, const rkv_snapshot_cache_match_result& found) noexcept
        : cache_(cache), found_(found) {}
    [[nodiscard]] static rkv_snapshot_cache_match_result none() noexcept {
        return sized<rkv_snapshot_cache_match_result>();
    }

    // Not a share of the SnapshotCache: the C cache lives behind its handle as long as pins do.
    rkv_snapshot_cache* cache_ = nullptr;
    rkv_snapshot_cache_match_result found_ = none();
};

/// Owns one fetch from below memory: rkv_snapshot_cache_cancel() at the end. Made by
/// SnapshotCache::fetch(); empty when there is nothing to fetch. Not to outlive the SnapshotCache.
class SnapshotFetch {
public:
    /// Owns nothing.
    SnapshotFetch() noexcept = default;
    SnapshotFetch(SnapshotFetch&& other) noexcept
        : cache_(other.cache_), started_(std::exchange(other.started_, none())) {}
    SnapshotFetch& operator=(SnapshotFetch&& other) noexcept {
        SnapshotFetch taken(std::move(other));
        std::swap(cache_, taken.cache_);
        std::swap(started_, taken.started_);
        return *this;
    }
    ~SnapshotFetch() {
        if (get() == 0) return;
        // After a detach it is stale, and nothing is left to cancel.
        [[maybe_unused]] const rkv_status status = rkv_snapshot_cache_cancel(cache_, get());
    }

    [[nodiscard]] rkv_ticket_id get() const noexcept { return started_.ticket; }
    [[nodiscard]] explicit operator bool() const noexcept { return get() != 0; }
    /// Gives the ticket up, without rkv_snapshot_cache_cancel().
    [[nodiscard]] rkv_ticket_id release() noexcept {
        return std::exchange(started_, none()).ticket;
    }
    /// rkv_snapshot_cache_cancel() now. An empty one does nothing.
    void reset() {
        if (get() == 0) return;
        check(rkv_snapshot_cache_cancel(cache_, get()));
        (void)release();
    }

    /// Tokens of the snapshot that it brings; this and the next two are 0 when the remote store is
    /// asked: the pin that take() gives says then what came, if anything did.
    [[nodiscard]] std::size_t token_count() const noexcept {
        return static_cast<std::size_t>(started_.token_count);
    }
    /// Those that the query begins with: fewer only after a fetch of trimmable ones.
    [[nodiscard]] std::size_t common_token_count() const noexcept {
        return static_cast<std::size_t>(started_.common_token_count);
    }
    /// What the snapshot takes.
    [[nodiscard]] std::uint64_t size_bytes() const noexcept { return started_.size_bytes; }

    /// rkv_snapshot_cache_take(): nothing while the fetch goes on; else it has ended, this is
    /// empty, and the pin is so too if the snapshot could not be had. An empty one throws
    /// RKV_STATUS_INVALID_ARGUMENT.
    [[nodiscard]] std::optional<SnapshotPin> take() {
        auto found = sized<rkv_snapshot_cache_match_result>();
        // An empty one asks no cache, which may be gone.
        rkv_snapshot_cache* cache = get() != 0 ? cache_ : nullptr;
        const rkv_status status = rkv_snapshot_cache_take(cache, get(), &found);
        if (status == RKV_STATUS_PENDING) return std::nullopt;
        check(status);
        (void)release();
        return SnapshotPin(cache_, found);
    }

private:
    friend class SnapshotCache;
    SnapshotFetch(rkv_snapshot_cache* cache,
                  const rkv_snapshot_cache_fetch_result& started) noexcept
        : cache_(cache), started_(started) {}
    [[nodiscard]] static rkv_snapshot_cache_fetch_result none() noexcept {
        return sized<rkv_snapshot_cache_fetch_result>();
    }

    rkv_snapshot_cache* cache_ = nullptr;
    rkv_snapshot_cache_fetch_result started_ = none();
};

/// Owns an rkv_snapshot_cache of any snapshots. TypedSnapshotCache is for those of one type.
class SnapshotCache {
public:
    /// rkv_snapshot_cache_config_init().
    [[nodiscard]] static rkv_snapshot_cache_config config() {
        rkv_snapshot_cache_config config{};
        check(rkv_snapshot_cache_config_init(&config, sizeof config));
        return config;
    }

    /// rkv_snapshot_cache_create() with the defaults.
    SnapshotCache() : SnapshotCache(config()) {}
    /// rkv_snapshot_cache_create().
    explicit SnapshotCache(const rkv_snapshot_cache_config& config) {
        rkv_snapshot_cache* cache = nullptr;
        check(rkv_snapshot_cache_create(&config, &cache));
        handle_.reset(cache);
    }
    /// Takes over a handle that C code created.
    explicit SnapshotCache(rkv_snapshot_cache* owned) noexcept : handle_(owned) {}

    [[nodiscard]] rkv_snapshot_cache* get() const noexcept { return handle_.get(); }
    /// Gives the handle up, without rkv_snapshot_cache_destroy().
    [[nodiscard]] rkv_snapshot_cache* release() noexcept { return handle_.release(); }
    /// rkv_snapshot_cache_destroy() now. Pins that are out keep their snapshots.
    void reset() noexcept { handle_.reset(); }

    /// rkv_snapshot_cache_insert() of whatever the arguments say.
    rkv_snapshot_cache_insert_result insert(const rkv_snapshot_cache_insert_args& args) {
        auto result = sized<rkv_snapshot_cache_insert_result>();
        check(rkv_snapshot_cache_insert(get(), &args, &result));
        return result;
    }
    /// rkv_snapshot_cache_insert() of an object, which is deleted when the cache lets it go. If
    /// its destructor throws the process ends, with a message. flags 0 or
    /// RKV_SNAPSHOT_INSERT_TRIMMABLE.
    template <class T>
    rkv_snapshot_cache_insert_result insert(TokenView tokens, std::unique_ptr<T> snapshot,
                                      std::uint64_t size_bytes,
                                      std::optional<std::uint32_t> next_token = std::nullopt,
                                      const Namespace& ns = Namespace(),
                                      std::uint32_t flags = 0) {
        // The library would write size_bytes from where the object begins.
        if ((flags & RKV_SNAPSHOT_INSERT_STORABLE) != 0)
            throw Error(RKV_STATUS_INVALID_ARGUMENT, "flags: what is storable has parts");
        auto args = of_object(tokens, snapshot, next_token, ns);
        args.flags = flags;
        args.size_bytes = size_bytes;
        const rkv_snapshot_cache_insert_result result = insert(args);
        (void)snapshot.release();  // the cache's since the call succeeded
        return result;
    }
    /// The same, of an object that may be written below memory: RKV_SNAPSHOT_INSERT_STORABLE, too.
    /// It is made of these parts, which stay as they are until it is deleted; together they are
    /// size_bytes. What comes back is a copy of them and no object: SnapshotPin::is_copy(). A
    /// thread of the library may delete it, and there its destructor must not call this cache.
    template <class T>
    rkv_snapshot_cache_insert_result insert_storable(
        TokenView tokens, std::unique_ptr<T> snapshot, span<const rkv_snapshot_part> parts,
        std::optional<std::uint32_t> next_token = std::nullopt, const Namespace& ns = Namespace(),
        std::uint32_t flags = 0) {
        auto args = of_object(tokens, snapshot, next_token, ns);
        args.flags = flags | RKV_SNAPSHOT_INSERT_STORABLE;
        args.parts = parts.data();
        args.part_count = parts.size();
        args.part_size = sizeof(rkv_snapshot_part);
        for (const rkv_snapshot_part& part : parts) args.size_bytes += part.size_bytes;
        const rkv_snapshot_cache_insert_result result = insert(args);
        (void)snapshot.release();  // the cache's since the call succeeded
        return result;
    }
    /// rkv_snapshot_cache_match(); flags 0 or RKV_SNAPSHOT_MATCH_TRIMMABLE.
    [[nodiscard]] SnapshotPin match(TokenView tokens, const Namespace& ns = Namespace(),
                                    std::uint32_t flags = 0) {
        auto found = sized<rkv_snapshot_cache_match_result>();
        check(rkv_snapshot_cache_match(get(), ns.get(), tokens.get(), flags, &found));
        return SnapshotPin(get(), found);
    }
    /// rkv_snapshot_cache_probe(): the tokens that match() would find, without flags.
    [[nodiscard]] std::size_t probe(TokenView tokens, const Namespace& ns = Namespace()) const {
        std::size_t token_count = 0;
        check(rkv_snapshot_cache_probe(get(), ns.get(), tokens.get(), &token_count));
        return token_count;
    }
    /// Owns from now on a pin that C code took.
    [[nodiscard]] SnapshotPin adopt_pin(const rkv_snapshot_cache_match_result& found) {
        if (get() == nullptr) throw Error(RKV_STATUS_INVALID_ARGUMENT, "cache is empty");
        return SnapshotPin(get(), found);
    }
    /// rkv_snapshot_cache_remove(): whether there was an entry of exactly these tokens.
    bool remove(TokenView tokens, const Namespace& ns = Namespace()) {
        bool removed = false;
        check(rkv_snapshot_cache_remove(get(), ns.get(), tokens.get(), &removed));
        return removed;
    }
    /// rkv_snapshot_tier_config_init().
    [[nodiscard]] static rkv_snapshot_tier_config tier_config() {
        rkv_snapshot_tier_config config{};
        check(rkv_snapshot_tier_config_init(&config, sizeof config));
        return config;
    }
    /// rkv_snapshot_cache_attach(): throws RKV_STATUS_STORAGE when the directory cannot be used.
    void attach(const rkv_snapshot_tier_config& config) {
        check(rkv_snapshot_cache_attach(get(), &config));
    }
    /// rkv_snapshot_cache_detach(): false when the time was over first.
    bool detach(std::chrono::milliseconds timeout) {
        return is_done(rkv_snapshot_cache_detach(get(), whole(timeout)));
    }
    /// rkv_snapshot_cache_flush(): false when something is not written yet.
    [[nodiscard]] bool flush(std::chrono::milliseconds timeout) {
        return is_done(rkv_snapshot_cache_flush(get(), whole(timeout)));
    }
    /// rkv_snapshot_cache_fetch(): empty when nothing below memory is longer than what memory has,
    /// and there is no remote store to ask for more; flags 0 or RKV_SNAPSHOT_MATCH_TRIMMABLE.
    [[nodiscard]] SnapshotFetch fetch(TokenView tokens, const Namespace& ns = Namespace(),
                                      std::uint32_t flags = 0) {
        auto started = sized<rkv_snapshot_cache_fetch_result>();
        check(rkv_snapshot_cache_fetch(get(), ns.get(), tokens.get(), flags, &started));
        return SnapshotFetch(get(), started);
    }
    /// rkv_snapshot_cache_read_tier_stats().
    [[nodiscard]] rkv_snapshot_tier_stats tier_stats() {
        auto stats = sized<rkv_snapshot_tier_stats>();
        check(rkv_snapshot_cache_read_tier_stats(get(), &stats));
        return stats;
    }
    /// rkv_snapshot_cache_clear().
    void clear() { check(rkv_snapshot_cache_clear(get())); }
    /// rkv_snapshot_cache_read_stats().
    [[nodiscard]] rkv_snapshot_cache_stats stats() const {
        auto stats = sized<rkv_snapshot_cache_stats>();
        check(rkv_snapshot_cache_read_stats(get(), &stats));
        return stats;
    }
    /// rkv_snapshot_cache_check(): throws RKV_STATUS_CORRUPT.
    void check_invariants() const { check(rkv_snapshot_cache_check(get())); }

private:
    template <class T>
    [[nodiscard]] static rkv_snapshot_cache_insert_args of_object(
        const TokenView& tokens, const std::unique_ptr<T>& snapshot,
        std::optional<std::uint32_t> next_token, const Namespace& ns) noexcept {
        auto args = sized<rkv_snapshot_cache_insert_args>();
        args.space = ns.get();
        args.tokens = tokens.get();
        args.data = snapshot.get();
        args.destructor = [](void* data, std::uint64_t, void*) noexcept {
            detail::must_not_throw("the destructor of a snapshot",
                                   [&] { delete static_cast<T*>(data); });
        };
        args.has_next_token = next_token.has_value() ? 1 : 0;
        args.next_token = next_token.value_or(0);
        return args;
    }
    [[nodiscard]] static std::uint64_t whole(std::chrono::milliseconds timeout) noexcept {
        return timeout.count() > 0 ? static_cast<std::uint64_t>(timeout.count()) : 0;
    }
    [[nodiscard]] static bool is_done(rkv_status status) {
        if (status == RKV_STATUS_PENDING) return false;
        check(status);
        return true;
    }

    struct Destroy {
        void operator()(rkv_snapshot_cache* cache) const noexcept {
            rkv_snapshot_cache_destroy(cache);
        }
    };
    std::unique_ptr<rkv_snapshot_cache, Destroy> handle_;
};

/// A SnapshotPin on a T, which any number of readers may share. A copy from below memory is no T:
/// ask SnapshotCache for those.
template <class T> class TypedSnapshotPin : public SnapshotPin {
public:
    TypedSnapshotPin() noexcept = default;
    explicit TypedSnapshotPin(SnapshotPin&& pin) noexcept : SnapshotPin(std::move(pin)) {}

    [[nodiscard]] const T& operator*() const noexcept { return *static_cast<const T*>(data()); }
    [[nodiscard]] const T* operator->() const noexcept { return &**this; }
};

/// A snapshot cache of objects of one type.
template <class T> class TypedSnapshotCache {
public:
    TypedSnapshotCache() = default;
    explicit TypedSnapshotCache(const rkv_snapshot_cache_config& config) : cache_(config) {}

    /// The cache beneath, for everything that does not depend on the type.
    [[nodiscard]] SnapshotCache& base() noexcept { return cache_; }
    [[nodiscard]] const SnapshotCache& base() const noexcept { return cache_; }

    /// SnapshotCache::insert() of an object.
    rkv_snapshot_cache_insert_result insert(TokenView tokens, std::unique_ptr<T> snapshot,
                                      std::uint64_t size_bytes,
                                      std::optional<std::uint32_t> next_token = std::nullopt,
                                      const Namespace& ns = Namespace(),
                                      std::uint32_t flags = 0) {
        return cache_.insert(tokens, std::move(snapshot), size_bytes, next_token, ns, flags);
    }
    /// SnapshotCache::insert() of a value.
    rkv_snapshot_cache_insert_result insert(TokenView tokens, T snapshot, std::uint64_t size_bytes,
                                      std::optional<std::uint32_t> next_token = std::nullopt,
                                      const Namespace& ns = Namespace(),
                                      std::uint32_t flags = 0) {
        return insert(tokens, std::make_unique<T>(std::move(snapshot)), size_bytes, next_token,
                      ns, flags);
    }
    /// SnapshotCache::match().
    [[nodiscard]] TypedSnapshotPin<T> match(TokenView tokens, const Namespace& ns = Namespace(),
                                            std::uint32_t flags = 0) {
        return TypedSnapshotPin<T>(cache_.match(tokens, ns, flags));
    }

private:
    SnapshotCache cache_;
};

#if defined(RKV_FAULT_INJECTION)
/// rkv_fault_panic_snapshot().
inline void fault_panic(SnapshotCache& cache) { check(rkv_fault_panic_snapshot(cache.get())); }
#endif

}  // namespace rkv

#endif  // RADIXKV_SNAPSHOT_HPP
