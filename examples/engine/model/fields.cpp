#include "model/fields.hpp"

#include <cstdint>
#include <stdexcept>

namespace engine {

namespace {

std::size_t to_count(const nlohmann::json& value, const std::string& name) {
    // Far above any model, and far below where sizes computed from it overflow.
    constexpr std::uint64_t most = std::uint64_t{1} << 31;
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
        value.get<std::uint64_t>() > most)
        refuse_config(name + " is not a positive number");
    return value.get<std::size_t>();
}

}  // namespace

void refuse_config(const std::string& what) { throw std::runtime_error(what); }

Fields::Fields(const Json& object, const std::string& name) : object_(object) {
    if (!object.is_object()) refuse_config((name.empty() ? "" : name + " is ") + "not an object");
}

const nlohmann::json* Fields::find(const std::string& name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::size_t Fields::count(const std::string& name) const {
    const Json* value = find(name);
    if (value == nullptr) refuse_config(name + " is missing");
    return to_count(*value, name);
}

std::size_t Fields::count_or(const std::string& name, std::size_t otherwise) const {
    const Json* value = find(name);
    return value != nullptr ? to_count(*value, name) : otherwise;
}

double Fields::real_or(const std::string& name, double otherwise, double most) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    constexpr double least = 1e-30;
    const double given = value->is_number() ? value->get<double>() : 0;
    if (!(given >= least && given <= most))
        refuse_config(name + " is not a positive number up to " + Json(most).dump());
    return given;
}

bool Fields::flag_or(const std::string& name, bool otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse_config(name + " is neither true nor false");
    return value->get<bool>();
}

}  // namespace engine
