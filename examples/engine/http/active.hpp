// How many of something are being answered, or written.
#ifndef ENGINE_HTTP_ACTIVE_HPP
#define ENGINE_HTTP_ACTIVE_HPP

#include "http/api_error.hpp"

#include <atomic>
#include <cstddef>
#include <string>

namespace engine {

/// Counts while it lives. Throws an ApiError of 503 when there would be too many; `what` says of
/// what.
class Active {
public:
    Active(std::atomic<std::size_t>& count, std::size_t most, const char* what) : count_(count) {
        if (++count_ <= most) return;
        --count_;
        throw ApiError(503, std::string("too many ") + what + ": " + std::to_string(most));
    }
    Active(const Active&) = delete;
    Active& operator=(const Active&) = delete;
    ~Active() { --count_; }

private:
    std::atomic<std::size_t>& count_;
};

/// Counts while it lives, whatever the number.
class Counted {
public:
    explicit Counted(std::atomic<std::size_t>& count) noexcept : count_(count) { ++count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() { --count_; }

private:
    std::atomic<std::size_t>& count_;
};

}  // namespace engine

#endif  // ENGINE_HTTP_ACTIVE_HPP
