#include "http/fields.hpp"

#include "http/random_hex.hpp"
#include "model/json.hpp"

#include <cmath>
#include <random>

namespace engine::fields {

namespace {

std::vector<std::string> stop_of(const Json& body) {
    const Json* stop = find(body, "stop");
    if (stop == nullptr) return {};
    std::vector<std::string> words;
    const Json list = stop->is_array() ? *stop : Json::array({*stop});
    constexpr std::size_t most = 16;
    if (list.size() > most) refuse("stop", "more than " + std::to_string(most) + " strings");
    for (const Json& word : list) {
        if (!word.is_string() || word.get_ref<const std::string&>().empty())
            refuse("stop", "neither a string that isn't empty nor an array of such");
        words.push_back(word.get<std::string>());
    }
    return words;
}

std::uint64_t seed_of(const Json& body) {
    const Json* seed = find(body, "seed");
    if (seed == nullptr) {
        std::random_device device;
        return std::uint64_t{device()} << 32 | device();
    }
    if (!seed->is_number_integer()) refuse("seed", "not a whole number");
    return seed->is_number_unsigned() ? seed->get<std::uint64_t>()
                                      : static_cast<std::uint64_t>(seed->get<std::int64_t>());
}

std::string salt_of(const Json& body) {
    const Json* salt = find(body, "cache_salt");
    if (salt == nullptr) return {};
    if (!salt->is_string() || salt->get_ref<const std::string&>().empty())
        refuse("cache_salt", "not a string that isn't empty");
    // It is kept for as long as something is retained under it.
    constexpr std::size_t longest = 256;
    if (salt->get_ref<const std::string&>().size() > longest)
        refuse("cache_salt", "longer than " + std::to_string(longest) + " bytes");
    return salt->get<std::string>();
}

void check_model(const Json& body, const std::string& served_model) {
    const Json* model = find(body, "model");
    if (model == nullptr) return;
    if (!model->is_string()) refuse("model", "not a string");
    if (*model != served_model)
        throw ApiError(404, "model: there is no " + model->dump() + " here, only \"" +
                                served_model + "\"",
                       "model", "model_not_found");
}

}  // namespace

Json parse_body(const std::string& body) {
    try {
        Json json = parse_json(body);
        if (!json.is_object()) throw ApiError(400, "the body is not a JSON object");
        return json;
    } catch (const Json::exception& error) {  // also for a number that no double holds
        throw ApiError(400, std::string("the body is not valid JSON: ") + error.what());
    } catch (const JsonTooDeep& error) {
        throw ApiError(400, std::string("the body: ") + error.what());
    }
}

void refuse(const char* param, const std::string& message) {
    throw ApiError(400, std::string(param) + ": " + message, param);
}

const Json* find(const Json& body, const char* name) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? nullptr : &*found;
}

bool flag(const Json& body, const char* name) {
    const Json* value = find(body, name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) refuse(name, "neither true nor false");
    return value->get<bool>();
}

double number(const Json& body, const char* name, double otherwise, double least, double most) {
    const Json* value = find(body, name);
    if (value == nullptr) return otherwise;
    const double given = value->is_number() ? value->get<double>() : std::nan("");
    if (!(given >= least && given <= most))
        refuse(name, "not a number from " + Json(least).dump() + " to " + Json(most).dump());
    return given;
}

std::size_t count(const Json& body, const char* name, std::size_t otherwise, std::size_t least,
                  std::size_t most) {
    const Json* value = find(body, name);
    if (value == nullptr) return otherwise;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < least ||
        value->get<std::uint64_t>() > most)
        refuse(name, "not a whole number from " + std::to_string(least) + " to " +
                         std::to_string(most));
    return value->get<std::size_t>();
}

void refuse_unsupported(const Json& body, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const Json* value = find(body, name);
        if (value == nullptr || *value == false || *value == 0 || *value == "") continue;
        if ((value->is_object() || value->is_array()) && value->empty()) continue;
        refuse(name, "not supported");
    }
}

void refuse_unless(const Json& body,
                   std::initializer_list<std::pair<const char*, Json>> neutral) {
    for (const auto& [name, only] : neutral)
        if (const Json* value = find(body, name); value != nullptr && *value != only)
            refuse(name, "not supported: only " + only.dump());
}

void read_shared(const Json& body, const std::string& served_model, const char* id_prefix,
                 CompletionRequest& request) {
    check_model(body, served_model);
    refuse_unsupported(
        body, {"presence_penalty", "frequency_penalty", "logit_bias", "min_p", "min_tokens",
               "stop_token_ids", "bad_words", "allowed_token_ids", "no_repeat_ngram_size",
               "structured_outputs", "guided_json", "guided_regex", "guided_choice",
               "guided_grammar"});
    refuse_unless(body, {{"repetition_penalty", 1},
                         {"typical_p", 1},
                         {"response_format", {{"type", "text"}}}});
    // Where 0 and -1 say the same.
    if (const Json* top_k = find(body, "top_k"); top_k != nullptr && *top_k != -1)
        refuse_unsupported(body, {"top_k"});
    RequestSpec& spec = request.spec;
    spec.id = id_prefix + random_hex();
    spec.sampling.temperature = number(body, "temperature", 1, 0, 100);
    spec.sampling.top_p = number(body, "top_p", 1, 0, 1);
    spec.sampling.seed = seed_of(body);
    spec.stop = stop_of(body);
    spec.ignore_eos = flag(body, "ignore_eos");
    spec.cache_salt = salt_of(body);
    request.stream = flag(body, "stream");
    request.return_token_ids = flag(body, "return_token_ids");
    if (const Json* options = find(body, "stream_options")) {
        if (!options->is_object()) refuse("stream_options", "not an object");
        request.include_usage = flag(*options, "include_usage");
    }
}

}  // namespace engine::fields
