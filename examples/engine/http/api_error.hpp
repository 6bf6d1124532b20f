// What is answered instead of what was asked for.
#ifndef ENGINE_HTTP_API_ERROR_HPP
#define ENGINE_HTTP_API_ERROR_HPP

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace engine {

/// A request that is answered with an HTTP status and a reason in JSON, as OpenAI's API does it.
class ApiError : public std::runtime_error {
public:
    ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
        : std::runtime_error(message),
          status_(status),
          param_(std::move(param)),
          code_(std::move(code)) {}

    /// A path that is asked for with a method that it doesn't have.
    [[nodiscard]] static ApiError wrong_method(const std::string& path, const std::string& right);

    [[nodiscard]] int status() const noexcept { return status_; }
    /// {"error": {...}}
    [[nodiscard]] std::string body() const;
    /// Header fields that go with it.
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> headers() const;

private:
    int status_;
    /// The field that is wrong; empty when it isn't one.
    std::string param_;
    /// A word for programs, where OpenAI's API has one.
    std::string code_;
    /// For 405: the method that would be right.
    std::string allowed_;
};

}  // namespace engine

#endif  // ENGINE_HTTP_API_ERROR_HPP
