// The fields of a config.json, by name.
#ifndef ENGINE_MODEL_FIELDS_HPP
#define ENGINE_MODEL_FIELDS_HPP

#include "model/json.hpp"

#include <cstddef>
#include <string>

namespace engine {

/// Reads one object. Everything throws std::runtime_error that names the field.
class Fields {
public:
    using Json = nlohmann::json;

    /// The object must outlive it. Throws when it is none; `name` is what the message calls it.
    explicit Fields(const Json& object, const std::string& name = "");

    /// The field, or NULL when it is missing or null.
    [[nodiscard]] const Json* find(const std::string& name) const;
    /// A positive number of something.
    [[nodiscard]] std::size_t count(const std::string& name) const;
    [[nodiscard]] std::size_t count_or(const std::string& name, std::size_t otherwise) const;
    /// Up to `most`; from 1e-30, so that it is a positive float too.
    [[nodiscard]] double real_or(const std::string& name, double otherwise, double most) const;
    [[nodiscard]] bool flag_or(const std::string& name, bool otherwise) const;

private:
    const Json& object_;
};

/// Throws std::runtime_error.
[[noreturn]] void refuse_config(const std::string& what);

}  // namespace engine

#endif  // ENGINE_MODEL_FIELDS_HPP
