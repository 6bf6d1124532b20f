#include "http/completion_response.hpp"

#include "serve/text.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <utility>

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

/// The bytes of a token as text that is valid by itself.
std::string token_text(std::uint32_t id) {
    Utf8Stream stream;
    std::string text = stream.push(decode(id));
    return text + stream.finish();
}

Json usage_json(const RequestResult& result) {
    return {{"prompt_tokens", result.prompt_tokens},
            {"completion_tokens", result.completion_tokens},
            {"total_tokens", result.prompt_tokens + result.completion_tokens},
            {"prompt_tokens_details", {{"cached_tokens", result.cached_tokens}}}};
}

Json logprobs_json(const std::vector<OutputToken>& tokens, std::size_t text_offset) {
    Json texts = Json::array(), logprobs = Json::array(), tops = Json::array();
    Json offsets = Json::array();
    for (const OutputToken& token : tokens) {
        texts.push_back(token_text(token.id));
        logprobs.push_back(token.logprob);
        Json top = Json::object();
        for (const auto& [id, value] : token.top_logprobs) {
            // Bytes that are no character by themselves all read alike; the likeliest counts.
            const std::string text = token_text(id);
            if (!top.contains(text)) top[text] = value;
        }
        tops.push_back(std::move(top));
        offsets.push_back(text_offset);
        text_offset += token.text.size();
    }
    return {{"tokens", texts},
            {"token_logprobs", logprobs},
            {"top_logprobs", tops},
            {"text_offset", offsets}};
}

Json choice_json(const CompletionRequest& request, const std::vector<OutputToken>& tokens,
                 const std::string& text, std::size_t text_offset, const char* finish) {
    Json choice = {{"index", 0}, {"text", text}, {"logprobs", nullptr}};
    if (request.logprobs) choice["logprobs"] = logprobs_json(tokens, text_offset);
    choice["finish_reason"] = finish != nullptr ? Json(finish) : Json(nullptr);
    if (request.return_token_ids) {
        Json ids = Json::array();
        for (const OutputToken& token : tokens) ids.push_back(token.id);
        choice["token_ids"] = std::move(ids);
    }
    return choice;
}

Json body_json(const std::string& id, std::int64_t created, const std::string& model,
               Json choices) {
    return {{"id", id},
            {"object", "text_completion"},
            {"created", created},
            {"model", model},
            {"choices", std::move(choices)}};
}

std::string data(const std::string& json) { return "data: " + json + "\n\n"; }

}  // namespace

CompletionResponse::CompletionResponse(const CompletionRequest& request, std::uint64_t number,
                                       std::string served_model)
    : request_(request),
      id_("cmpl-" + std::to_string(number)),
      served_model_(std::move(served_model)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

std::string CompletionResponse::prompt_text() const {
    if (!request_.echo) return {};
    Utf8Stream stream;
    std::string text;
    for (const std::uint32_t id : request_.spec.prompt) text += stream.push(decode(id));
    return text + stream.finish();
}

std::string CompletionResponse::event(const std::vector<OutputToken>& tokens,
                                      const std::string& text, bool last) {
    const char* finish = last ? finish_name(result_->finish) : nullptr;
    const Json choice = choice_json(request_, tokens, text, text_offset_, finish);
    text_offset_ += text.size();
    return data(body_json(id_, created_, served_model_, Json::array({choice})).dump());
}

std::string CompletionResponse::events(const OutputQueue::Output& output) {
    std::string out;
    if (output.result) result_ = output.result;
    for (const OutputToken& token : output.tokens) {
        const std::string before = std::exchange(first_, false) ? prompt_text() : std::string();
        out += event({token}, before + token.text, false);
    }
    if (!result_) return out;
    if (const std::optional<ApiError> error = failure()) return out + data(error->body());
    out += event({}, result_->text, true);
    if (request_.include_usage) {
        Json body = body_json(id_, created_, served_model_, Json::array());
        body["usage"] = usage_json(*result_);
        out += data(body.dump());
    }
    return out + "data: [DONE]\n\n";
}

void CompletionResponse::collect(const OutputQueue::Output& output) {
    for (const OutputToken& token : output.tokens) {
        text_ += token.text;
        tokens_.push_back(token);
    }
    if (output.result) result_ = output.result;
}

std::string CompletionResponse::whole() const {
    if (const std::optional<ApiError> error = failure()) return error->body();
    const std::string text = prompt_text() + text_ + result_->text;
    const Json choice = choice_json(request_, tokens_, text, 0, finish_name(result_->finish));
    Json body = body_json(id_, created_, served_model_, Json::array({choice}));
    body["usage"] = usage_json(*result_);
    return body.dump();
}

std::optional<ApiError> CompletionResponse::failure() const {
    if (!result_) return std::nullopt;
    if (result_->finish == Finish::error) return ApiError(500, result_->error);
    if (result_->finish == Finish::cancelled)
        return ApiError(503, "the request was cancelled: the server is shutting down");
    return std::nullopt;
}

}  // namespace engine
