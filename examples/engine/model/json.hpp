// JSON from outside.
#ifndef ENGINE_MODEL_JSON_HPP
#define ENGINE_MODEL_JSON_HPP

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace engine {

class JsonTooDeep : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// nlohmann::json::parse() for what a stranger wrote. The library copies and prints values
/// recursively, so that brackets alone, enough of them, would overflow the stack. Throws
/// JsonTooDeep, or what the library throws.
template <class... Input> nlohmann::json parse_json(Input&&... input) {
    constexpr int deepest = 64;
    const auto check = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
        if (depth > deepest)
            throw JsonTooDeep("JSON nested deeper than " + std::to_string(deepest));
        return true;
    };
    return nlohmann::json::parse(std::forward<Input>(input)..., check);
}

}  // namespace engine

#endif  // ENGINE_MODEL_JSON_HPP
