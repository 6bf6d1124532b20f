#include "http/completion_request.hpp"
#include "http/fields.hpp"

#include <algorithm>

namespace engine {

using namespace fields;

namespace {

/// A text, or parts of one.
std::string content_of(const Json& message) {
    const Json* content = find(message, "content");
    if (content == nullptr) refuse("messages", "one has no content");
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) refuse("messages", "a content is neither a string nor an array");
    std::string text;
    for (const Json& part : *content) {
        if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") ||
            !part["text"].is_string())
            refuse("messages", "a part of a content is no text");
        text += part["text"].get_ref<const std::string&>();
    }
    return text;
}

std::string role_of(const Json& message) {
    const Json* role = find(message, "role");
    // The newer name of the same thing.
    if (role != nullptr && *role == "developer") return "system";
    for (const char* known : {"system", "user", "assistant"})
        if (role != nullptr && *role == known) return known;
    refuse("messages", "a role is none of system, developer, user and assistant");
}

/// What the chat template knows.
std::string messages_of(const Json& body) {
    const Json* given = find(body, "messages");
    if (given == nullptr) refuse("messages", "missing");
    if (!given->is_array() || given->empty()) refuse("messages", "not an array of messages");
    Json messages = Json::array();
    for (const Json& message : *given) {
        if (!message.is_object()) refuse("messages", "one is not an object");
        messages.push_back({{"role", role_of(message)}, {"content", content_of(message)}});
    }
    return messages.dump();
}

std::size_t max_tokens_of(const Json& body, std::size_t otherwise) {
    const char* name = "max_completion_tokens";
    // The older name.
    if (find(body, name) == nullptr) name = "max_tokens";
    return count(body, name, otherwise, 1, SIZE_MAX / 2);
}

void refuse_what_is_no_text(const Json& body) {
    refuse_unsupported(body, {"tools", "functions", "audio", "chat_template",
                              "chat_template_kwargs", "reasoning_effort", "verbosity", "echo",
                              "retain", "continuation_of", "continuation_suffix",
                              "use_beam_search", "beam_width", "length_penalty", "best_of"});
    refuse_unless(body, {{"tool_choice", "none"}, {"modalities", Json::array({"text"})}});
}

}  // namespace

CompletionRequest parse_chat(const std::string& body, const Tokenizer& tokenizer,
                             const std::string& served_model, std::size_t longest) {
    const Json json = parse_body(body);
    CompletionRequest request;
    request.chat = true;
    read_shared(json, served_model, "chatcmpl-", request);
    refuse_what_is_no_text(json);
    RequestSpec& spec = request.spec;
    try {
        spec.prompt = tokenizer.encode(tokenizer.chat(messages_of(json)));
    } catch (const ChatError& error) {
        refuse("messages", error.what());
    }
    spec.choice_count = spec.sample_count = count(json, "n", 1, 1, 128);
    const std::size_t room = longest > spec.prompt.size() ? longest - spec.prompt.size() : 1;
    spec.max_tokens = max_tokens_of(json, room);
    const std::size_t shown = count(json, "top_logprobs", 0, 0, 20);
    if (flag(json, "logprobs"))
        spec.logprobs = shown;
    else if (shown > 0)
        refuse("top_logprobs", "only with logprobs");
    return request;
}

}  // namespace engine
