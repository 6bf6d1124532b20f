// A model of llama.cpp and one sequence of it, as far as a server of chats needs them.
#ifndef LLAMA_CPP_SEQUENCE_HPP
#define LLAMA_CPP_SEQUENCE_HPP

#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace example {

/// Token ids as radixkv takes them. llama.cpp's are never negative either.
using Ids = std::vector<std::uint32_t>;
/// A sequence's state, as llama.cpp writes it. Opaque.
using Bytes = std::vector<std::uint8_t>;

/// A model from a GGUF file.
class Model {
public:
    explicit Model(const std::string& path);

    [[nodiscard]] llama_model* get() const noexcept { return handle_.get(); }
    /// The tokens of a text; at the start of a prompt with the token that begins one.
    [[nodiscard]] Ids tokenize(const std::string& text, bool starts) const;
    /// Whether a token ends a reply.
    [[nodiscard]] bool ends_reply(std::uint32_t token) const;
    /// What it is, in a line.
    [[nodiscard]] std::string description() const;
    /// Whether its state can only be had as a whole.
    [[nodiscard]] bool is_recurrent() const;
    [[nodiscard]] std::size_t vocabulary_size() const;

private:
    struct Free {
        void operator()(llama_model* model) const noexcept { llama_model_free(model); }
    };
    std::unique_ptr<llama_model, Free> handle_;
};

/// One sequence: the tokens that the model has read. Their state is in the model's context.
class Sequence {
public:
    /// A sequence of so many tokens at most.
    Sequence(const Model& model, std::size_t longest, std::size_t thread_count);

    /// Back to no tokens.
    void clear();
    /// Reads tokens, in one batch.
    void read(const std::uint32_t* ids, std::size_t count);
    /// The most probable token after those that were read last.
    [[nodiscard]] std::uint32_t predict() const;
    /// A digest of the probabilities behind predict(), all bits of them.
    [[nodiscard]] std::uint64_t prediction_digest() const;

    /// llama_state_seq_get_data().
    [[nodiscard]] Bytes save() const;
    /// llama_state_seq_set_data(): as if the tokens had been read that led to this state, but for
    /// predict(), which llama.cpp does not save.
    void restore(const Bytes& state);

private:
    struct Free {
        void operator()(llama_context* context) const noexcept { llama_free(context); }
    };
    [[nodiscard]] const float* logits() const;

    std::unique_ptr<llama_context, Free> context_;
    std::size_t vocabulary_size_;
    std::vector<llama_token> batch_;
};

}  // namespace example

#endif  // LLAMA_CPP_SEQUENCE_HPP
