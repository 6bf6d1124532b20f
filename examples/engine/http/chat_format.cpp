#include "http/answer_format.hpp"

namespace engine {

namespace {

class ChatFormat final : public AnswerFormat {
public:
    ChatFormat(const CompletionRequest& request, const Tokenizer& tokenizer)
        : logprobs_(request.spec.logprobs), tokenizer_(tokenizer) {}

    [[nodiscard]] const char* object(bool streams) const override {
        return streams ? "chat.completion.chunk" : "chat.completion";
    }
    [[nodiscard]] Json choice(const ChoicePart& whole) const override {
        return with_logprobs(whole, {{"index", whole.index},
                                     {"message", {{"role", "assistant"},
                                                  {"content", whole.text},
                                                  {"refusal", nullptr}}}});
    }
    [[nodiscard]] Json event(const ChoicePart& part) const override {
        Json delta = Json::object();
        if (part.is_first) delta["role"] = "assistant";
        if (part.is_first || !part.text.empty()) delta["content"] = part.text;
        return with_logprobs(part, {{"index", part.index}, {"delta", delta}});
    }

private:
    std::optional<std::size_t> logprobs_;
    const Tokenizer& tokenizer_;

    [[nodiscard]] Json with_logprobs(const ChoicePart& part, Json choice) const {
        choice["logprobs"] = nullptr;
        if (!logprobs_) return choice;
        Json tokens = Json::array();
        for (const OutputToken& token : part.tokens) {
            Json entry = token_json(token.id, token.logprobs.logprob);
            entry["top_logprobs"] = Json::array();
            for (const auto& [id, value] : token.logprobs.top)
                entry["top_logprobs"].push_back(token_json(id, value));
            tokens.push_back(std::move(entry));
        }
        choice["logprobs"] = {{"content", tokens}, {"refusal", nullptr}};
        return choice;
    }
    [[nodiscard]] Json token_json(std::uint32_t id, double logprob) const {
        Json bytes = Json::array();
        for (const char byte : token_bytes(tokenizer_, id))
            bytes.push_back(static_cast<unsigned char>(byte));
        return {{"token", token_text(tokenizer_, id)}, {"logprob", logprob}, {"bytes", bytes}};
    }
};

}  // namespace

std::unique_ptr<AnswerFormat> chat_format(const CompletionRequest& request,
                                          const Tokenizer& tokenizer) {
    return std::make_unique<ChatFormat>(request, tokenizer);
}

}  // namespace engine
