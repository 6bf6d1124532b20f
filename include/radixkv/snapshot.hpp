/**
 * @file snapshot.hpp
 * @brief The snapshot cache: states of an engine by the tokens that led to them.
 */

#ifndef RADIXKV_SNAPSHOT_HPP
#define RADIXKV_SNAPSHOT_HPP

#include "callback.hpp"
#include "namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace rkv {

/// Owns one pin on a snapshot: rkv_snapshot_cache_release() at the end. Made by
/// SnapshotCache::match(); empty for a miss. It may outlive the SnapshotCache.
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
    /// Whether these are all tokens of the query.
    [[nodiscard]] bool full_hit() const noexcept { return found_.full_hit != 0; }
    /// What the model predicts after them.
    [[nodiscard]] std::optional<std::uint32_t> next_token() const noexcept {
        return found_.has_next_token != 0 ? std::optional(found_.next_token) : std::nullopt;
    }

private:
    friend class SnapshotCache;
    SnapshotPin(rkv_snapshot_cache* cache, const rkv_snapshot_cache_match_result& found) noexcept
        : cache_(cache), found_(found) {}
    [[nodiscard]] static rkv_snapshot_cache_match_result none() noexcept {
        return sized<rkv_snapshot_cache_match_result>();
    }

    // Not a share of the SnapshotCache: the C cache lives behind its handle as long as pins do.
    rkv_snapshot_cache* cache_ = nullptr;
    rkv_snapshot_cache_match_result found_ = none();
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
        auto args = sized<rkv_snapshot_cache_insert_args>();
        args.flags = flags;
        args.space = ns.get();
        args.tokens = tokens.get();
        args.data = snapshot.get();
        args.size_bytes = size_bytes;
        args.destructor = [](void* data, std::uint64_t, void*) noexcept {
            detail::must_not_throw("the destructor of a snapshot",
                                   [&] { delete static_cast<T*>(data); });
        };
        args.has_next_token = next_token.has_value() ? 1 : 0;
        args.next_token = next_token.value_or(0);
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
    [[nodiscard]] SnapshotPin adopt_pin(const rkv_snapshot_cache_match_result& found) noexcept {
        return SnapshotPin(get(), found);
    }
    /// rkv_snapshot_cache_remove(): whether there was an entry of exactly these tokens.
    bool remove(TokenView tokens, const Namespace& ns = Namespace()) {
        bool removed = false;
        check(rkv_snapshot_cache_remove(get(), ns.get(), tokens.get(), &removed));
        return removed;
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
    struct Destroy {
        void operator()(rkv_snapshot_cache* cache) const noexcept {
            rkv_snapshot_cache_destroy(cache);
        }
    };
    std::unique_ptr<rkv_snapshot_cache, Destroy> handle_;
};

/// A SnapshotPin on a T, which any number of readers may share.
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
