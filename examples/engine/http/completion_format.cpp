#include "http/answer_format.hpp"
#include "serve/text.hpp"

namespace engine {

namespace {

class CompletionFormat final : public AnswerFormat {
public:
    CompletionFormat(const CompletionRequest& request, const Tokenizer& tokenizer)
        : logprobs_(request.spec.logprobs), tokenizer_(tokenizer) {}

    [[nodiscard]] const char* object(bool) const override { return "text_completion"; }
    [[nodiscard]] Json choice(const ChoicePart& whole) const override {
        Json choice = {{"index", whole.index}, {"text", whole.text}, {"logprobs", nullptr}};
        if (logprobs_) choice["logprobs"] = logprobs(whole);
        return choice;
    }
    [[nodiscard]] Json event(const ChoicePart& part) const override { return choice(part); }

private:
    std::optional<std::size_t> logprobs_;
    const Tokenizer& tokenizer_;

    [[nodiscard]] Json logprobs(const ChoicePart& part) const {
        Json texts = Json::array(), logprobs = Json::array(), tops = Json::array();
        Json offsets = Json::array();
        std::size_t offset = part.text_offset;
        for (const OutputToken& token : part.tokens) {
            texts.push_back(token_text(tokenizer_, token.id));
            logprobs.push_back(token.logprobs.logprob);
            Json top = Json::object();
            for (const auto& [id, value] : token.logprobs.top) {
                // Bytes that are no character by themselves all read alike; the likeliest counts.
                const std::string text = token_text(tokenizer_, id);
                if (!top.contains(text)) top[text] = value;
            }
            tops.push_back(std::move(top));
            offsets.push_back(offset);
            offset += character_count(token.text);
        }
        return {{"tokens", texts},
                {"token_logprobs", logprobs},
                {"top_logprobs", tops},
                {"text_offset", offsets}};
    }
};

}  // namespace

std::unique_ptr<AnswerFormat> completion_format(const CompletionRequest& request,
                                                const Tokenizer& tokenizer) {
    return std::make_unique<CompletionFormat>(request, tokenizer);
}

std::string_view token_bytes(const Tokenizer& tokenizer, std::uint32_t id) {
    const std::string_view bytes = tokenizer.decode(id);
    return bytes.empty() ? tokenizer.special(id) : bytes;
}

std::string token_text(const Tokenizer& tokenizer, std::uint32_t id) {
    Utf8Stream stream;
    std::string text = stream.push(token_bytes(tokenizer, id));
    return text + stream.finish();
}

}  // namespace engine
