#include "http/completion_response.hpp"

#include "serve/text.hpp"

#include <chrono>
#include <utility>

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

Json usage_json(const RequestResult& result) {
    return {{"prompt_tokens", result.prompt_tokens},
            {"completion_tokens", result.completion_tokens},
            {"total_tokens", result.prompt_tokens + result.completion_tokens},
            {"prompt_tokens_details",
             {{"cached_tokens", result.cached_tokens},
              {"inherited_tokens", result.inherited_tokens}}}};
}

/// What is known of a choice when it is over.
void add_result(const CompletionRequest& request, const ChoiceResult& result, Json& choice) {
    choice["finish_reason"] = finish_name(result.finish);
    if (result.logprob) choice["cumulative_logprob"] = *result.logprob;
    if (!request.spec.retain) return;
    choice["retained_id"] =
        result.retained_id.empty() ? Json(nullptr) : Json(result.retained_id);
}

std::string data(const std::string& json) { return "data: " + json + "\n\n"; }

}  // namespace

CompletionResponse::CompletionResponse(const CompletionRequest& request,
                                       std::string served_model, const Tokenizer& tokenizer)
    : request_(request),
      served_model_(std::move(served_model)),
      format_(request.chat ? chat_format(request, tokenizer)
                           : completion_format(request, tokenizer)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      outputs_(request.spec.width()) {}

CompletionResponse::Json CompletionResponse::body(bool streams, Json choices) const {
    return {{"id", request_.spec.id},
            {"object", format_->object(streams)},
            {"created", created_},
            {"model", served_model_},
            {"choices", std::move(choices)}};
}

/// Of a choice that is not over.
CompletionResponse::Json CompletionResponse::unfinished(
    Json choice, const std::vector<OutputToken>& tokens) const {
    choice["finish_reason"] = nullptr;
    if (!request_.return_token_ids) return choice;
    choice["token_ids"] = Json::array();
    for (const OutputToken& token : tokens) choice["token_ids"].push_back(token.id);
    return choice;
}

/// A continuation's is its parent's, and more.
bool CompletionResponse::tells_prompt() const {
    return request_.return_token_ids && !request_.spec.continuation;
}

CompletionResponse::Json CompletionResponse::event(Json choices) const {
    Json json = body(true, std::move(choices));
    if (request_.include_usage) json["usage"] = nullptr;
    return json;
}

std::string CompletionResponse::token_event(const OutputToken& token) {
    Output& output = outputs_.at(token.sequence);
    const bool is_first = !std::exchange(output.began, true);
    const std::string text = (is_first ? request_.echo : std::string()) + token.text;
    const std::vector<OutputToken> tokens = {token};
    const Json choice = unfinished(
        format_->event({token.sequence, tokens, text, output.text_offset, is_first}), tokens);
    output.text_offset += character_count(text);
    Json json = event(Json::array({choice}));
    if (is_first && tells_prompt()) {
        json["prompt_token_ids"] = request_.spec.prompt;
        json["cached_tokens"] = token.cached_tokens;
    }
    return data(json.dump());
}

std::string CompletionResponse::last_event(std::size_t index) const {
    const ChoiceResult& result = result_->choices[index];
    const Output& output = outputs_.at(result.sequence);
    Json choice = unfinished(
        format_->event({index, {}, result.text, output.text_offset, !output.began}), {});
    add_result(request_, result, choice);
    return data(event(Json::array({choice})).dump());
}

std::string CompletionResponse::events(const OutputQueue::Output& output) {
    std::string out;
    if (output.result) result_ = output.result;
    for (const OutputToken& token : output.tokens) out += token_event(token);
    if (!result_) return out;
    if (const std::optional<ApiError> error = failure()) return out + data(error->body());
    for (std::size_t i = 0; i < result_->choices.size(); ++i) out += last_event(i);
    if (request_.include_usage) {
        Json json = body(true, Json::array());
        json["usage"] = usage_json(*result_);
        out += data(json.dump());
    }
    return out + "data: [DONE]\n\n";
}

void CompletionResponse::collect(const OutputQueue::Output& output) {
    for (const OutputToken& token : output.tokens) {
        Output& mine = outputs_.at(token.sequence);
        mine.text += token.text;
        mine.tokens.push_back(token);
    }
    if (output.result) result_ = output.result;
}

std::string CompletionResponse::whole() const {
    if (const std::optional<ApiError> error = failure()) return error->body();
    Json choices = Json::array();
    for (std::size_t i = 0; i < result_->choices.size(); ++i) {
        const ChoiceResult& result = result_->choices[i];
        const Output& output = outputs_.at(result.sequence);
        const std::string text = request_.echo + output.text + result.text;
        Json choice = unfinished(format_->choice({i, output.tokens, text, 0, true}), output.tokens);
        add_result(request_, result, choice);
        choices.push_back(std::move(choice));
    }
    Json json = body(false, std::move(choices));
    if (tells_prompt()) json["prompt_token_ids"] = request_.spec.prompt;
    json["usage"] = usage_json(*result_);
    json["first_token_seconds"] = result_->first_token_seconds;
    return json.dump();
}

std::optional<ApiError> CompletionResponse::failure() const {
    if (!result_) return std::nullopt;
    if (result_->finish == Finish::error) return ApiError(500, result_->error);
    if (result_->finish == Finish::cancelled)
        return ApiError(503, "the request was cancelled: the server is shutting down");
    return std::nullopt;
}

}  // namespace engine
