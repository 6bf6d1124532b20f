// The bodies of POST /v1/completions and POST /v1/chat/completions.
#ifndef ENGINE_HTTP_COMPLETION_REQUEST_HPP
#define ENGINE_HTTP_COMPLETION_REQUEST_HPP

#include "http/api_error.hpp"
#include "serve/request.hpp"
#include "serve/tokenizer.hpp"

#include <cstddef>
#include <string>

namespace engine {

struct CompletionRequest {
    RequestSpec spec;
    /// Answer with messages instead of texts.
    bool chat = false;
    bool stream = false;
    /// A last chunk of the stream that has the usage.
    bool include_usage = false;
    /// What the output begins with: the prompt, if that is wanted.
    std::string echo;
    /// The output's ids beside its text.
    bool return_token_ids = false;
};

/// Parses a body. `served_model` is the only model that may be asked for. Throws ApiError: 400 with
/// the field that is wrong, 404 for another model.
[[nodiscard]] CompletionRequest parse_completion(const std::string& body,
                                                 const Tokenizer& tokenizer,
                                                 const std::string& served_model);

/// The same for a chat. Without max_tokens the answer may be so long that prompt and answer have
/// `longest` tokens together.
[[nodiscard]] CompletionRequest parse_chat(const std::string& body, const Tokenizer& tokenizer,
                                           const std::string& served_model, std::size_t longest);

}  // namespace engine

#endif  // ENGINE_HTTP_COMPLETION_REQUEST_HPP
