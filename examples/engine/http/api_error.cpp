#include "http/api_error.hpp"

#include <nlohmann/json.hpp>

namespace engine {

ApiError ApiError::wrong_method(const std::string& path, const std::string& right) {
    ApiError error(405, "there is only " + right + " " + path);
    error.allowed_ = right;
    return error;
}

std::vector<std::pair<std::string, std::string>> ApiError::headers() const {
    if (!allowed_.empty()) return {{"Allow", allowed_}};
    if (status_ == 503) return {{"Retry-After", "1"}};
    return {};
}

std::string ApiError::body() const {
    using Json = nlohmann::json;
    const auto text = [](const std::string& word) { return word.empty() ? Json() : Json(word); };
    const Json error = {{"message", what()},
                        {"type", status_ >= 500 ? "server_error" : "invalid_request_error"},
                        {"param", text(param_)},
                        {"code", text(code_)}};
    // What a reason quotes from the request may be cut inside a character.
    return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace engine
