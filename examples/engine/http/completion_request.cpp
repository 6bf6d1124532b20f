#include "http/completion_request.hpp"

#include "http/fields.hpp"
#include "serve/text.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace engine {

using namespace fields;

namespace {

std::vector<std::uint32_t> ids_of(const Json& list, const char* name) {
    std::vector<std::uint32_t> ids;
    for (const Json& id : list) {
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() > UINT32_MAX)
            refuse(name, "an array of token ids has an element that is none");
        ids.push_back(id.get<std::uint32_t>());
    }
    return ids;
}

/// A text, or ids; either may stand alone in an array, as clients send it.
const Json& prompt_in(const Json& body) {
    const Json* prompt = find(body, "prompt");
    if (prompt == nullptr) refuse("prompt", "missing");
    if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
        if (prompt->size() > 1) refuse("prompt", "one prompt a request; there are several");
        prompt = &prompt->front();
    }
    if (!prompt->is_array() && !prompt->is_string())
        refuse("prompt", "neither a string nor an array of token ids");
    return *prompt;
}

/// Ids are taken as they are.
std::vector<std::uint32_t> tokens_of(const Json& prompt, const Tokenizer& tokenizer) {
    if (prompt.is_array()) return ids_of(prompt, "prompt");
    return tokenizer.encode_whole(prompt.get_ref<const std::string&>());
}

/// A text is told as it was sent: its tokens may spell another one.
std::string echo_of(const Json& prompt, const std::vector<std::uint32_t>& tokens,
                    const Tokenizer& tokenizer) {
    if (prompt.is_string()) return prompt.get<std::string>();
    Utf8Stream stream;
    std::string text;
    for (const std::uint32_t id : tokens) text += stream.push(tokenizer.decode(id));
    return text + stream.finish();
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

}  // namespace

CompletionRequest parse_completion(const std::string& body, const Tokenizer& tokenizer,
                                   const std::string& served_model) {
    const Json json = parse_body(body);
    CompletionRequest request;
    read_shared(json, served_model, "cmpl-", request);
    refuse_unsupported(json, {"suffix"});
    // Of chats; some clients send both.
    if (const Json* most = find(json, "max_tokens"))
        refuse_unless(json, {{"max_completion_tokens", *most}});
    else
        refuse_unsupported(json, {"max_completion_tokens"});
    RequestSpec& spec = request.spec;
    spec.continuation = continuation_of(json, tokenizer);
    const bool echo = flag(json, "echo");
    if (!spec.continuation || has_prompt(json)) {
        const Json& prompt = prompt_in(json);
        spec.prompt = tokens_of(prompt, tokenizer);
        if (echo) request.echo = echo_of(prompt, spec.prompt, tokenizer);
    }
    spec.retain = flag(json, "retain");
    read_choices(json, spec);
    spec.max_tokens = count(json, "max_tokens", 16, 1, SIZE_MAX / 2);
    check_stream(request);
    if (find(json, "logprobs") != nullptr) spec.logprobs = count(json, "logprobs", 0, 0, 20);
    if (echo && spec.logprobs)
        refuse("echo", "not together with logprobs: a cached prompt is not computed again");
    if (echo && spec.continuation)
        refuse("echo", "not together with continuation_of: the prompt is not in the request");
    return request;
}

}  // namespace engine
