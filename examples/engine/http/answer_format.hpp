// How the endpoints spell what was generated.
#ifndef ENGINE_HTTP_ANSWER_FORMAT_HPP
#define ENGINE_HTTP_ANSWER_FORMAT_HPP

#include "http/completion_request.hpp"
#include "http/output_queue.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace engine {

/// A choice, or what an event of a stream adds to one.
struct ChoicePart {
    std::size_t index;
    const std::vector<OutputToken>& tokens;
    const std::string& text;
    /// Characters of text that came before.
    std::size_t text_offset;
    /// Whether nothing of the choice came before.
    bool is_first;
};

class AnswerFormat {
public:
    using Json = nlohmann::ordered_json;

    virtual ~AnswerFormat() = default;
    /// What "object" says.
    [[nodiscard]] virtual const char* object(bool streams) const = 0;
    /// All but why the choice ended.
    [[nodiscard]] virtual Json choice(const ChoicePart& whole) const = 0;
    [[nodiscard]] virtual Json event(const ChoicePart& part) const = 0;
};

/// The tokenizer must outlive it.
[[nodiscard]] std::unique_ptr<AnswerFormat> completion_format(const CompletionRequest& request,
                                                              const Tokenizer& tokenizer);
[[nodiscard]] std::unique_ptr<AnswerFormat> chat_format(const CompletionRequest& request,
                                                        const Tokenizer& tokenizer);

/// How log probabilities spell a token: special ones, which are no text of an answer, by name.
[[nodiscard]] std::string_view token_bytes(const Tokenizer& tokenizer, std::uint32_t id);
/// These bytes as text that is valid by itself.
[[nodiscard]] std::string token_text(const Tokenizer& tokenizer, std::uint32_t id);

}  // namespace engine

#endif  // ENGINE_HTTP_ANSWER_FORMAT_HPP
