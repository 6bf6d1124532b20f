// The body of POST /v1/completions.
#ifndef ENGINE_HTTP_COMPLETION_REQUEST_HPP
#define ENGINE_HTTP_COMPLETION_REQUEST_HPP

#include "serve/request.hpp"
#include "serve/tokenizer.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace engine {

/// A request that is answered with an HTTP status and a reason in JSON.
class ApiError : public std::runtime_error {
public:
    ApiError(int status, const std::string& message, std::string param = {})
        : std::runtime_error(message), status_(status), param_(std::move(param)) {}

    [[nodiscard]] int status() const noexcept { return status_; }
    /// The field that is wrong; empty when it isn't one.
    [[nodiscard]] const std::string& param() const noexcept { return param_; }
    /// {"error": {...}}
    [[nodiscard]] std::string body() const;

private:
    int status_;
    std::string param_;
};

struct CompletionRequest {
    RequestSpec spec;
    bool stream = false;
    /// A last chunk of the stream that has the usage.
    bool include_usage = false;
    /// The output begins with the prompt.
    bool echo = false;
    /// The output's ids beside its text.
    bool return_token_ids = false;
};

/// Parses a body, and gives the request an id that nobody can guess: whoever knows it may go on
/// from what was retained under it. `served_model` is the only model that may be asked for. Throws
/// ApiError: 400 with the field that is wrong, 404 for another model.
[[nodiscard]] CompletionRequest parse_completion(const std::string& body,
                                                 const Tokenizer& tokenizer,
                                                 const std::string& served_model);

}  // namespace engine

#endif  // ENGINE_HTTP_COMPLETION_REQUEST_HPP
