/**
 * @file namespace.hpp
 * @brief Namespaces: which prefixes may share.
 */

#ifndef RADIXKV_NAMESPACE_HPP
#define RADIXKV_NAMESPACE_HPP

#include "token.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace rkv {

/// Which prefixes may share: an rkv_namespace. A new one is the default namespace.
class Namespace {
public:
    Namespace() noexcept = default;
    explicit Namespace(const rkv_namespace& raw) noexcept : raw_(raw) {}

    Namespace& lora(std::uint64_t id) & noexcept {
        raw_.flags |= static_cast<std::uint32_t>(RKV_NAMESPACE_LORA);
        raw_.lora_id = id;
        return *this;
    }
    Namespace& epoch(std::uint64_t epoch) & noexcept {
        raw_.epoch = epoch;
        return *this;
    }
    Namespace& image(const Digest& digest) & noexcept {
        raw_.flags |= static_cast<std::uint32_t>(RKV_NAMESPACE_IMAGE);
        std::copy(digest.begin(), digest.end(), raw_.image_digest);
        return *this;
    }
    Namespace& salt(const std::array<std::uint8_t, 32>& salt) & noexcept {
        std::copy(salt.begin(), salt.end(), raw_.salt);
        return *this;
    }
    // Of a temporary a value, so that a reference to what comes out keeps it.
    Namespace lora(std::uint64_t id) && noexcept { return lora(id); }
    Namespace epoch(std::uint64_t epoch) && noexcept { return this->epoch(epoch); }
    Namespace image(const Digest& digest) && noexcept { return image(digest); }
    Namespace salt(const std::array<std::uint8_t, 32>& salt) && noexcept {
        return this->salt(salt);
    }
    [[nodiscard]] const rkv_namespace* get() const noexcept { return &raw_; }

private:
    rkv_namespace raw_ = sized<rkv_namespace>();
};

}  // namespace rkv

#endif  // RADIXKV_NAMESPACE_HPP
