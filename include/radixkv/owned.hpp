/**
 * @file owned.hpp
 * @brief What a cache hands out: ids that end when their owner does.
 */

#ifndef RADIXKV_OWNED_HPP
#define RADIXKV_OWNED_HPP

#include "error.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace rkv {

namespace detail {

/// The C cache, held by the Cache and by each Sequence and Lock of it.
struct CacheHandle {
    rkv_cache* cache = nullptr;
    std::uint32_t page_size = 0;

    CacheHandle() noexcept = default;
    CacheHandle(const CacheHandle&) = delete;
    CacheHandle& operator=(const CacheHandle&) = delete;
    ~CacheHandle() { rkv_cache_destroy(cache); }
};

/// A share in a C cache and an id in it, which `End` ends.
template <class Id, rkv_status (*End)(rkv_cache*, Id)> class Owned {
public:
    Owned() noexcept = default;
    /// Id zero owns nothing, and keeps nothing alive.
    Owned(std::shared_ptr<CacheHandle> handle, Id id) noexcept
        : handle_(id != 0 ? std::move(handle) : nullptr), id_(id) {}
    Owned(Owned&& other) noexcept
        : handle_(std::move(other.handle_)), id_(std::exchange(other.id_, 0)) {}
    Owned& operator=(Owned&& other) noexcept {
        Owned taken(std::move(other));
        std::swap(handle_, taken.handle_);
        std::swap(id_, taken.id_);
        return *this;
    }
    ~Owned() {
        if (cache() == nullptr || id_ == 0) return;
        // A destructor has nobody to tell; reset() is for those who want to know.
        [[maybe_unused]] const rkv_status status = End(cache(), id_);
    }

    [[nodiscard]] rkv_cache* cache() const noexcept { return handle_ ? handle_->cache : nullptr; }
    [[nodiscard]] const std::shared_ptr<CacheHandle>& handle() const noexcept { return handle_; }
    [[nodiscard]] Id id() const noexcept { return id_; }
    [[nodiscard]] Id release() noexcept {
        handle_.reset();
        return std::exchange(id_, 0);
    }
    void reset() {
        if (id_ == 0) return;
        check(End(cache(), id_));
        (void)release();
    }

private:
    std::shared_ptr<CacheHandle> handle_;
    Id id_ = 0;
};

}  // namespace detail

}  // namespace rkv

#endif  // RADIXKV_OWNED_HPP
