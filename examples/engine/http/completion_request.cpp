#include "http/completion_request.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace engine {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const char* param, const std::string& message) {
    throw ApiError(400, std::string(param) + ": " + message, param);
}

/// The field, or NULL when it is missing or null.
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

std::vector<std::uint32_t> ids_of(const Json& list, const char* name) {
    std::vector<std::uint32_t> ids;
    for (const Json& id : list) {
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() > UINT32_MAX)
            refuse(name, "an array of token ids has an element that is none");
        ids.push_back(id.get<std::uint32_t>());
    }
    return ids;
}

/// A text, or ids that are taken as they are; either may stand alone in an array, as clients send
/// it.
std::vector<std::uint32_t> prompt_of(const Json& body, const Tokenizer& tokenizer) {
    const Json* prompt = find(body, "prompt");
    if (prompt == nullptr) refuse("prompt", "missing");
    if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
        if (prompt->size() > 1) refuse("prompt", "one prompt a request; there are several");
        prompt = &prompt->front();
    }
    if (prompt->is_array()) return ids_of(*prompt, "prompt");
    if (!prompt->is_string()) refuse("prompt", "neither a string nor an array of token ids");
    return tokenizer.encode_whole(prompt->get_ref<const std::string&>());
}

/// A continuation needs no prompt; an empty one is none.
bool has_prompt(const Json& body) {
    const Json* prompt = find(body, "prompt");
    return prompt != nullptr && *prompt != "" && !(prompt->is_array() && prompt->empty());
}

std::optional<Continuation> continuation_of(const Json& body, const Tokenizer& tokenizer) {
    const Json* parent = find(body, "continuation_of");
    const Json* suffix = find(body, "continuation_suffix");
    if (parent == nullptr) {
        if (suffix != nullptr) refuse("continuation_suffix", "only with continuation_of");
        return std::nullopt;
    }
    if (!parent->is_string() || parent->get_ref<const std::string&>().empty())
        refuse("continuation_of", "not the id of a completion");
    Continuation continuation{parent->get<std::string>(), {}};
    if (suffix == nullptr) return continuation;
    if (suffix->is_array())
        continuation.suffix = ids_of(*suffix, "continuation_suffix");
    else if (suffix->is_string())
        continuation.suffix = tokenizer.encode(suffix->get_ref<const std::string&>());
    else
        refuse("continuation_suffix", "neither a string nor an array of token ids");
    return continuation;
}

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
    return salt->get<std::string>();
}

/// n, and of how many samples or beams the n choices are the best.
void read_choices(const Json& body, RequestSpec& spec) {
    constexpr std::size_t most = 128;
    spec.choice_count = count(body, "n", 1, 1, most);
    if (!flag(body, "use_beam_search")) {
        for (const char* name : {"beam_width", "length_penalty"})
            if (find(body, name) != nullptr) refuse(name, "only with use_beam_search");
        spec.sample_count = count(body, "best_of", spec.choice_count, 1, most);
        if (spec.sample_count < spec.choice_count) refuse("best_of", "fewer than n");
        return;
    }
    if (find(body, "best_of") != nullptr)
        refuse("best_of", "not with use_beam_search, where beam_width says it");
    for (const auto& [name, only] : {std::pair("temperature", 0), std::pair("top_p", 1)})
        if (const Json* value = find(body, name); value != nullptr && *value != only)
            refuse(name, "a beam search draws nothing: only " + std::to_string(only));
    spec.beam_width = count(body, "beam_width", spec.choice_count, 1, most);
    if (spec.beam_width < spec.choice_count) refuse("beam_width", "fewer than n");
    spec.length_penalty = number(body, "length_penalty", 1, 0, 100);
}

/// What is ranked when all of it is there cannot be sent while it is generated.
void check_stream(const CompletionRequest& request) {
    if (!request.stream) return;
    if (request.spec.searches()) refuse("stream", "not with use_beam_search");
    if (request.spec.sample_count > request.spec.choice_count)
        refuse("stream", "not with a best_of that is more than n");
}

std::string new_id() {
    std::random_device device;
    char text[16];
    std::string id = "cmpl-";
    for (int i = 0; i < 4; ++i) {
        std::snprintf(text, sizeof text, "%08x", device());
        id += text;
    }
    return id;
}

/// Fields that would change the output, if this engine knew how.
void refuse_unsupported(const Json& body) {
    for (const char* name : {"presence_penalty", "frequency_penalty"})
        if (const Json* value = find(body, name); value != nullptr && *value != 0)
            refuse(name, "not supported");
    for (const char* name : {"suffix", "logit_bias"})
        if (const Json* value = find(body, name); value != nullptr && !value->empty())
            refuse(name, "not supported");
}

void check_model(const Json& body, const std::string& served_model) {
    const Json* model = find(body, "model");
    if (model == nullptr) return;
    if (!model->is_string()) refuse("model", "not a string");
    if (*model != served_model)
        throw ApiError(404, "model: there is no " + model->dump() + " here, only \"" +
                                served_model + "\"",
                       "model");
}

Json parse_json(const std::string& body) {
    try {
        Json json = Json::parse(body);
        if (!json.is_object()) throw ApiError(400, "the body is not a JSON object");
        return json;
    } catch (const Json::parse_error& error) {
        throw ApiError(400, std::string("the body is not valid JSON: ") + error.what());
    }
}

}  // namespace

std::string ApiError::body() const {
    const char* type = status_ >= 500 ? "server_error" : "invalid_request_error";
    Json error = {{"message", what()}, {"type", type}, {"code", status_}, {"param", nullptr}};
    if (!param_.empty()) error["param"] = param_;
    // What is quoted from the request may be cut inside a character.
    return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CompletionRequest parse_completion(const std::string& body, const Tokenizer& tokenizer,
                                   const std::string& served_model) {
    const Json json = parse_json(body);
    check_model(json, served_model);
    refuse_unsupported(json);
    CompletionRequest request;
    RequestSpec& spec = request.spec;
    spec.id = new_id();
    spec.continuation = continuation_of(json, tokenizer);
    if (!spec.continuation || has_prompt(json)) spec.prompt = prompt_of(json, tokenizer);
    spec.retain = flag(json, "retain");
    read_choices(json, spec);
    spec.max_tokens = count(json, "max_tokens", 16, 1, SIZE_MAX / 2);
    spec.sampling.temperature = number(json, "temperature", 1, 0, 100);
    spec.sampling.top_p = number(json, "top_p", 1, 0, 1);
    spec.sampling.seed = seed_of(json);
    spec.stop = stop_of(json);
    spec.ignore_eos = flag(json, "ignore_eos");
    spec.cache_salt = salt_of(json);
    request.stream = flag(json, "stream");
    request.echo = flag(json, "echo");
    request.return_token_ids = flag(json, "return_token_ids");
    check_stream(request);
    if (find(json, "logprobs") != nullptr) spec.logprobs = count(json, "logprobs", 0, 0, 20);
    if (request.echo && spec.logprobs)
        refuse("echo", "not together with logprobs: a cached prompt is not computed again");
    if (request.echo && spec.continuation)
        refuse("echo", "not together with continuation_of: the prompt is not in the request");
    if (const Json* options = find(json, "stream_options")) {
        if (!options->is_object()) refuse("stream_options", "not an object");
        request.include_usage = flag(*options, "include_usage");
    }
    return request;
}

}  // namespace engine
