#include "http/completion_response.hpp"

#include "serve/text.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <utility>

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

/// The bytes of a token as text that is valid by itself.
std::string token_text(const Tokenizer& tokenizer, std::uint32_t id) {
    Utf8Stream stream;
    std::string text = stream.push(tokenizer.decode(id));
    return text + stream.finish();
}

Json usage_json(const RequestResult& result) {
    return {{"prompt_tokens", result.prompt_tokens},
            {"completion_tokens", result.completion_tokens},
            {"total_tokens", result.prompt_tokens + result.completion_tokens},
            {"prompt_tokens_details",
             {{"cached_tokens", result.cached_tokens},
              {"inherited_tokens", result.inherited_tokens}}}};
}

Json logprobs_json(const Tokenizer& tokenizer, const std::vector<OutputToken>& tokens,
                   std::size_t text_offset) {
    Json texts = Json::array(), logprobs = Json::array(), tops = Json::array();
    Json offsets = Json::array();
    for (const OutputToken& token : tokens) {
        texts.push_back(token_text(tokenizer, token.id));
        logprobs.push_back(token.logprobs.logprob);
        Json top = Json::object();
        for (const auto& [id, value] : token.logprobs.top) {
            // Bytes that are no character by themselves all read alike; the likeliest counts.
            const std::string text = token_text(tokenizer, id);
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

Json choice_json(const CompletionRequest& request, const Tokenizer& tokenizer,
                 std::size_t index, const std::vector<OutputToken>& tokens,
                 const std::string& text, std::size_t text_offset) {
    Json choice = {{"index", index}, {"text", text}, {"logprobs", nullptr}};
    if (request.spec.logprobs) choice["logprobs"] = logprobs_json(tokenizer, tokens, text_offset);
    choice["finish_reason"] = nullptr;
    if (request.return_token_ids) {
        Json ids = Json::array();
        for (const OutputToken& token : tokens) ids.push_back(token.id);
        choice["token_ids"] = std::move(ids);
    }
    return choice;
}

/// What is known of a choice when it is over.
void add_result(const CompletionRequest& request, const ChoiceResult& result, Json& choice) {
    choice["finish_reason"] = finish_name(result.finish);
    if (result.logprob) choice["cumulative_logprob"] = *result.logprob;
    if (!request.spec.retain) return;
    choice["retained_id"] =
        result.retained_id.empty() ? Json(nullptr) : Json(result.retained_id);
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

CompletionResponse::CompletionResponse(const CompletionRequest& request,
                                       std::string served_model, const Tokenizer& tokenizer)
    : request_(request),
      served_model_(std::move(served_model)),
      tokenizer_(tokenizer),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      outputs_(request.spec.width()) {}

std::string CompletionResponse::prompt_text() const {
    if (!request_.echo) return {};
    Utf8Stream stream;
    std::string text;
    for (const std::uint32_t id : request_.spec.prompt) text += stream.push(tokenizer_.decode(id));
    return text + stream.finish();
}

std::string CompletionResponse::token_event(const OutputToken& token) {
    Output& output = outputs_.at(token.sequence);
    const std::string before =
        std::exchange(output.began, true) ? std::string() : prompt_text();
    const std::string text = before + token.text;
    const Json choice =
        choice_json(request_, tokenizer_, token.sequence, {token}, text, output.text_offset);
    output.text_offset += text.size();
    return data(
        body_json(request_.spec.id, created_, served_model_, Json::array({choice})).dump());
}

std::string CompletionResponse::last_event(std::size_t index) {
    const ChoiceResult& result = result_->choices[index];
    const std::size_t offset = outputs_.at(result.sequence).text_offset;
    Json choice = choice_json(request_, tokenizer_, index, {}, result.text, offset);
    add_result(request_, result, choice);
    return data(
        body_json(request_.spec.id, created_, served_model_, Json::array({choice})).dump());
}

std::string CompletionResponse::events(const OutputQueue::Output& output) {
    std::string out;
    if (output.result) result_ = output.result;
    for (const OutputToken& token : output.tokens) out += token_event(token);
    if (!result_) return out;
    if (const std::optional<ApiError> error = failure()) return out + data(error->body());
    for (std::size_t i = 0; i < result_->choices.size(); ++i) out += last_event(i);
    if (request_.include_usage) {
        Json body = body_json(request_.spec.id, created_, served_model_, Json::array());
        body["usage"] = usage_json(*result_);
        out += data(body.dump());
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
        const std::string text = prompt_text() + output.text + result.text;
        Json choice = choice_json(request_, tokenizer_, i, output.tokens, text, 0);
        add_result(request_, result, choice);
        choices.push_back(std::move(choice));
    }
    Json body = body_json(request_.spec.id, created_, served_model_, std::move(choices));
    body["usage"] = usage_json(*result_);
    body["first_token_seconds"] = result_->first_token_seconds;
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
