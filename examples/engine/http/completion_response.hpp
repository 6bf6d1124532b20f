// What POST /v1/completions and POST /v1/chat/completions answer.
#ifndef ENGINE_HTTP_COMPLETION_RESPONSE_HPP
#define ENGINE_HTTP_COMPLETION_RESPONSE_HPP

#include "http/answer_format.hpp"
#include "http/completion_request.hpp"
#include "http/output_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace engine {

/// Renders the output of one request, whole or in server-sent events.
class CompletionResponse {
public:
    /// The tokenizer must outlive it.
    CompletionResponse(const CompletionRequest& request, std::string served_model,
                       const Tokenizer& tokenizer);

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
    using Json = AnswerFormat::Json;

    /// The output of one sequence, as far as it has come.
    struct Output {
        std::vector<OutputToken> tokens;
        std::string text;
        /// Streamed so far, in characters of text.
        std::size_t text_offset = 0;
        bool began = false;
    };

    CompletionRequest request_;
    std::string served_model_;
    std::unique_ptr<AnswerFormat> format_;
    std::int64_t created_;
    std::vector<Output> outputs_;
    std::optional<RequestResult> result_;

    [[nodiscard]] std::string token_event(const OutputToken& token);
    [[nodiscard]] std::string last_event(std::size_t index) const;
    [[nodiscard]] bool tells_prompt() const;
    [[nodiscard]] Json event(Json choices) const;
    [[nodiscard]] Json body(bool streams, Json choices) const;
    [[nodiscard]] Json unfinished(Json choice, const std::vector<OutputToken>& tokens) const;
};

}  // namespace engine

#endif  // ENGINE_HTTP_COMPLETION_RESPONSE_HPP
