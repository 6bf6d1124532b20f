// What POST /v1/completions answers.
#ifndef ENGINE_HTTP_COMPLETION_RESPONSE_HPP
#define ENGINE_HTTP_COMPLETION_RESPONSE_HPP

#include "http/completion_request.hpp"
#include "http/output_queue.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace engine {

/// Renders the output of one request, whole or in server-sent events.
class CompletionResponse {
public:
    CompletionResponse(const CompletionRequest& request, std::uint64_t number,
                       std::string served_model);

    /// The events for tokens that arrived, and after the result, the end of the stream.
    [[nodiscard]] std::string events(const OutputQueue::Output& output);
    /// Collects output that is not streamed.
    void collect(const OutputQueue::Output& output);
    /// All that was collected, in one object; after the result has come.
    [[nodiscard]] std::string whole() const;
    /// Whether the result has come.
    [[nodiscard]] bool finished() const noexcept { return result_.has_value(); }
    /// What ended the request before its time, e.g. an error of the engine.
    [[nodiscard]] std::optional<ApiError> failure() const;

private:
    struct Choice;

    CompletionRequest request_;
    std::string id_, served_model_;
    std::int64_t created_;
    std::vector<OutputToken> tokens_;
    std::string text_;
    std::size_t text_offset_ = 0;
    bool first_ = true;
    std::optional<RequestResult> result_;

    [[nodiscard]] std::string prompt_text() const;
    [[nodiscard]] std::string event(const std::vector<OutputToken>& tokens,
                                    const std::string& text, bool last);
};

}  // namespace engine

#endif  // ENGINE_HTTP_COMPLETION_RESPONSE_HPP
