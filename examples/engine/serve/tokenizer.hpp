// Text to tokens and back, as the model's files say.
#ifndef ENGINE_SERVE_TOKENIZER_HPP
#define ENGINE_SERVE_TOKENIZER_HPP

#include "model/config.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace engine {

/// Messages that the model's chat template refuses, or a model without one; with the reason.
class ChatError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// May be used by several threads.
class Tokenizer {
public:
    virtual ~Tokenizer() = default;

    /// A whole text, with what the model wants in front of one.
    [[nodiscard]] virtual std::vector<std::uint32_t> encode_whole(std::string_view text) const = 0;
    /// A text as it is.
    [[nodiscard]] virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
    /// The bytes of a token, which may be a part of a character. Nothing for ids that are no text.
    [[nodiscard]] virtual std::string_view decode(std::uint32_t id) const = 0;
    /// What a special token is called, such as "<|im_end|>"; nothing for other ids.
    [[nodiscard]] virtual std::string_view special(std::uint32_t id) const = 0;
    /// The text in front of what the assistant says next; encode() makes tokens of it. `messages`
    /// is a JSON array of {"role", "content"}. Throws ChatError.
    [[nodiscard]] virtual std::string chat(const std::string& messages) const = 0;
};

/// That of tokenizer.json. Without this file tokens are bytes. Throws std::runtime_error that says
/// what is wrong.
[[nodiscard]] std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                                        const ModelConfig& model);

}  // namespace engine

#endif  // ENGINE_SERVE_TOKENIZER_HPP
