// A request as its sender sees it.
#ifndef ENGINE_SERVE_REQUEST_HPP
#define ENGINE_SERVE_REQUEST_HPP

#include "serve/sampler.hpp"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace engine {

struct RequestSpec {
    std::vector<std::uint32_t> prompt;
    std::size_t max_tokens = 16;
    Sampling sampling;
    /// Texts that end the output and are not part of it.
    std::vector<std::string> stop;
    /// Go on after an end-of-text token.
    bool ignore_eos = false;
    /// Requests share cached prefixes only with requests of the same salt. Empty for none.
    std::string cache_salt;
};

/// Why a request ended.
enum class Finish { stop, length, cancelled, error };

[[nodiscard]] constexpr const char* finish_name(Finish finish) noexcept {
    switch (finish) {
        case Finish::stop: return "stop";
        case Finish::length: return "length";
        case Finish::cancelled: return "cancelled";
        case Finish::error: return "error";
    }
    return "";
}

/// One generated token. Everything in it is good during the call only.
struct TokenOutput {
    std::uint32_t id;
    /// Text that has become certain with it; often its byte, but a token may complete a character,
    /// or be held back as the possible beginning of a stop string.
    const std::string& text;
    const float* logits;
    std::size_t vocab_size;
};

struct RequestResult {
    Finish finish;
    /// What was held back and is output after all.
    std::string text;
    /// With Finish::error.
    std::string error;
    std::size_t prompt_tokens;
    /// Of those, tokens whose KV was found in the cache when the request began.
    std::size_t cached_tokens;
    std::size_t completion_tokens;
    /// How often the request lost its memory to others and was computed again.
    std::size_t preemptions;
};

/// Hears of a request's progress, on the engine's thread: it must be quick and must not throw.
class Listener {
public:
    virtual ~Listener() = default;
    virtual void on_token(const TokenOutput& token) = 0;
    /// The last call. Exactly one for each request that was accepted.
    virtual void on_finish(const RequestResult& result) = 0;
};

/// A request that can never be served, with the reason.
class InvalidRequest : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A request that could be served at another time.
class Overloaded : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace engine

#endif  // ENGINE_SERVE_REQUEST_HPP
