// What a request generates, from the engine's thread to the one that writes to its client.
#ifndef ENGINE_HTTP_OUTPUT_QUEUE_HPP
#define ENGINE_HTTP_OUTPUT_QUEUE_HPP

#include "serve/request.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace engine {

/// A generated token with what its client asked for.
struct OutputToken {
    /// As in TokenOutput.
    std::size_t sequence;
    std::uint32_t id;
    std::string text;
    /// Empty unless asked for.
    TokenLogprobs logprobs;
    std::size_t cached_tokens;
};

class OutputQueue final : public Listener {
public:
    void on_token(const TokenOutput& token) override;
    void on_finish(RequestResult&& result) noexcept override;

    /// What came since the last call, and the result once it is there. Waits for either; returns
    /// empty-handed when the time is over.
    struct Output {
        std::vector<OutputToken> tokens;
        std::optional<RequestResult> result;

        [[nodiscard]] bool empty() const { return tokens.empty() && !result; }
    };
    [[nodiscard]] Output wait(std::chrono::milliseconds time);
    /// Waits for the result alone and leaves everything in the queue. False when the time is over.
    [[nodiscard]] bool wait_finished(std::chrono::milliseconds time);

private:
    std::mutex mutex_;
    std::condition_variable arrived_;
    Output output_;
};

}  // namespace engine

#endif  // ENGINE_HTTP_OUTPUT_QUEUE_HPP
