// Fields of a JSON body, and those that all kinds of completions have.
#ifndef ENGINE_HTTP_FIELDS_HPP
#define ENGINE_HTTP_FIELDS_HPP

#include "http/completion_request.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace engine::fields {

using Json = nlohmann::json;

/// A body that must be an object.
[[nodiscard]] Json parse_body(const std::string& body);

/// Throws an ApiError of 400 that names the field.
[[noreturn]] void refuse(const char* param, const std::string& message);

/// The field, or NULL when it is missing or null.
[[nodiscard]] const Json* find(const Json& body, const char* name);
[[nodiscard]] bool flag(const Json& body, const char* name);
[[nodiscard]] double number(const Json& body, const char* name, double otherwise, double least,
                            double most);
[[nodiscard]] std::size_t count(const Json& body, const char* name, std::size_t otherwise,
                                std::size_t least, std::size_t most);

/// Refuses fields that would change the output, if this endpoint knew how: those whose value says
/// more than "no".
void refuse_unsupported(const Json& body, std::initializer_list<const char*> names);

/// Refuses those that have another value than the one that changes nothing.
void refuse_unless(const Json& body,
                   std::initializer_list<std::pair<const char*, Json>> neutral);

/// Everything but the prompt, its length, the choices and the log probabilities. The id, which
/// begins with `id_prefix`, is one that nobody can guess: whoever knows it may go on from what was
/// retained under it.
void read_shared(const Json& body, const std::string& served_model, const char* id_prefix,
                 CompletionRequest& request);

}  // namespace engine::fields

#endif  // ENGINE_HTTP_FIELDS_HPP
