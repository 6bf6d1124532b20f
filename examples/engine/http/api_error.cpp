#include "http/api_error.hpp"

#include <nlohmann/json.hpp>

namespace engine {

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
