#include "http/request_head.hpp"

#include "http/api_error.hpp"

#include <strings.h>

#include <charconv>
#include <cstdint>
#include <string>

namespace engine {

namespace {

bool begins_with(const std::string& text, const std::string& prefix) {
    return text.compare(0, prefix.size(), prefix) == 0;
}

/// The only method of a path; empty when there is no such path.
std::string method_of(const std::string& path) {
    if (path == "/v1/completions" || path == "/v1/chat/completions") return "POST";
    if (begins_with(path, "/v1/completions/")) return "DELETE";
    if (path == "/v1/models" || begins_with(path, "/v1/models/")) return "GET";
    for (const char* known : {"/", "/cache/events", "/health", "/metrics"})
        if (path == known) return "GET";
    return "";
}

bool is_length(const std::string& text, std::uint64_t& length) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    return error == std::errc() && end == text.data() + text.size();
}

/// Whether a body follows. One that two readers could take for different ones is refused.
bool has_body(const httplib::Request& request, std::size_t max_bytes) {
    const std::size_t lengths = request.get_header_value_count("Content-Length");
    const std::size_t codings = request.get_header_value_count("Transfer-Encoding");
    if (lengths + codings > 1)
        throw ApiError(400, "Content-Length: more than one says how long the body is");
    if (codings > 0) {
        if (strcasecmp(request.get_header_value("Transfer-Encoding").c_str(), "chunked") != 0)
            throw ApiError(400, "Transfer-Encoding: only chunked");
        return true;
    }
    if (lengths == 0) return false;
    std::uint64_t length = 0;
    if (!is_length(request.get_header_value("Content-Length"), length))
        throw ApiError(400, "Content-Length: not a number of bytes");
    if (length > max_bytes) throw ApiError(413, "the body is too long");
    return length > 0;
}

}  // namespace

void check_head(const httplib::Request& request, std::size_t max_body_bytes) {
    const std::string method = method_of(request.path);
    if (method.empty())
        throw ApiError(404, "there is no " + request.method + " " + request.path);
    const bool asks_for_head = method == "GET" && request.method == "HEAD";
    if (request.method != method && !asks_for_head)
        throw ApiError::wrong_method(request.path, method);
    // The library would take all that follows for the body, of any length, and unpack it.
    if (method == "POST" && !request.has_header("Content-Length") &&
        !request.has_header("Transfer-Encoding"))
        throw ApiError(411, "Content-Length: missing");
    if (!has_body(request, max_body_bytes)) return;
    if (method != "POST") throw ApiError(400, "a body goes with POST alone");
    if (request.is_multipart_form_data()) throw ApiError(400, "the body has several parts");
    // A few bytes can be packed that become any number of them.
    if (request.has_header("Content-Encoding"))
        throw ApiError(415, "Content-Encoding: the body is taken only as it is");
}

}  // namespace engine
