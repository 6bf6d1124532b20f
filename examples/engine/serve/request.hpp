// A request as its sender sees it.
#ifndef ENGINE_SERVE_REQUEST_HPP
#define ENGINE_SERVE_REQUEST_HPP

#include "serve/sampler.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace engine {

/// A request that goes on from another one.
struct Continuation {
    /// Under which id the other one, or a choice of it, was retained.
    std::string parent;
    /// What comes after the parent's tokens: those of its prompt and those that it generated.
    std::vector<std::uint32_t> suffix;
    /// Those of the parent. Core::accept() puts them here if there is one.
    std::shared_ptr<const std::vector<std::uint32_t>> tokens = nullptr;
};

struct RequestSpec {
    /// A continuation needs none. If it has one it is all of its tokens, the suffix included, with
    /// which it begins like any other request when its parent is gone.
    std::vector<std::uint32_t> prompt;
    std::optional<Continuation> continuation;
    std::size_t max_tokens = 16;
    Sampling sampling;
    /// Choices to return.
    std::size_t choice_count = 1;
    /// Samples to draw. If more than choice_count, the likeliest by token are returned.
    std::size_t sample_count = 1;
    /// Not 0: a beam search that keeps so many beams, instead of sampling. The choices are the best
    /// beams, the best one first.
    std::size_t beam_width = 0;
    /// Beams of different lengths are ranked by log probability / tokens ^ length_penalty.
    double length_penalty = 1;
    /// Texts that end the output and are not part of it.
    std::vector<std::string> stop;
    /// Go on after an end-of-text token.
    bool ignore_eos = false;
    /// Requests share cached prefixes only with requests of the same salt. Empty for none.
    std::string cache_salt;
    /// Keep the choices, so that others can go on from them.
    bool retain = false;
    /// Under which id, see choice_id().
    std::string id;
    /// Log probabilities of each token, and of this many of the likeliest.
    std::optional<std::size_t> logprobs;

    [[nodiscard]] bool searches() const noexcept { return beam_width > 0; }
    /// Sequences that are computed side by side.
    [[nodiscard]] std::size_t width() const noexcept {
        return searches() ? beam_width : sample_count;
    }
};

/// What a choice is retained under: the request's id is that of the first one.
[[nodiscard]] inline std::string choice_id(const std::string& request, std::size_t choice) {
    return choice == 0 ? request : request + "." + std::to_string(choice);
}

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

/// At temperature 1.
struct TokenLogprobs {
    double logprob = 0;
    /// The likeliest tokens, the likeliest first.
    std::vector<std::pair<std::uint32_t, double>> top;
};

/// One generated token. Everything in it is valid only during the call.
struct TokenOutput {
    /// Which of the request's sequences it belongs to. The tokens of beams are told when the search
    /// is over, and only of those that are returned.
    std::size_t sequence;
    std::uint32_t id;
    /// Text that has become certain with it; often its byte, but a token may complete a character,
    /// or be held back as the possible beginning of a stop string.
    const std::string& text;
    /// NULL unless asked for.
    const TokenLogprobs* logprobs;
    /// What the token was drawn from; NULL for beams.
    const float* logits;
    std::size_t vocab_size;
    /// As in RequestResult.
    std::size_t cached_tokens;
};

/// One of the outputs that were asked for.
struct ChoiceResult {
    /// Whose tokens they are.
    std::size_t sequence;
    Finish finish;
    /// What was held back and is output after all.
    std::string text;
    /// Of all generated tokens together, where choices were ranked by it.
    std::optional<double> logprob;
    /// Under which others can go on from it. Empty when it wasn't retained.
    std::string retained_id;
};

struct RequestResult {
    /// When it ended well: that of the first choice.
    Finish finish;
    /// With Finish::error.
    std::string error;
    /// In the order of the answer. Empty when the request didn't end well.
    std::vector<ChoiceResult> choices;
    std::size_t prompt_tokens;
    /// Of those, tokens whose KV was there when the request began: found in the cache or inherited.
    std::size_t cached_tokens;
    /// Of those, tokens inherited from the request that this one continues.
    std::size_t inherited_tokens;
    /// Of all samples, returned or not; of a beam search, of the beams that are returned.
    std::size_t completion_tokens;
    /// How often a sequence of the request lost its memory to others and was computed again.
    std::size_t preemptions;
    /// From arrival until the first token was known; 0 if none was.
    double first_token_seconds;
};

/// Hears of one request's progress, on the engine's thread: it must be quick and must not throw.
class Listener {
public:
    virtual ~Listener() = default;
    /// Nobody wants the request any more, see Engine::cancel(). Any thread.
    void leave() noexcept { has_left_ = true; }
    [[nodiscard]] bool has_left() const noexcept { return has_left_; }
    virtual void on_token(const TokenOutput& token) = 0;
    /// The last call. Exactly one for each request that was accepted, also where there is no
    /// memory for a copy of the result: it is the listener's.
    virtual void on_finish(RequestResult&& result) = 0;

private:
    std::atomic<bool> has_left_{false};
};

/// A request that can never be served, with the reason.
class InvalidRequest : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A continuation whose parent is not retained (any more), and that has no prompt to begin with.
class UnknownParent : public InvalidRequest {
public:
    using InvalidRequest::InvalidRequest;
};

/// A continuation whose parent has not ended yet.
class ParentRunning : public InvalidRequest {
public:
    using InvalidRequest::InvalidRequest;
};

/// A request that could be served at another time.
class Overloaded : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace engine

#endif  // ENGINE_SERVE_REQUEST_HPP
