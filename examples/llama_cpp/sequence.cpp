#include "sequence.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace example {

namespace {

constexpr llama_seq_id only_sequence = 0;

/// The vocabulary knows its tokens by int32_t, with negative ones for none.
llama_token to_llama(std::uint32_t id) { return static_cast<llama_token>(id); }

}  // namespace

Model::Model(const std::string& path)
    : handle_(llama_model_load_from_file(path.c_str(), llama_model_default_params())) {
    if (handle_ == nullptr) throw std::runtime_error(path + ": llama.cpp cannot load it");
}

Ids Model::tokenize(const std::string& text, bool starts) const {
    const llama_vocab* vocabulary = llama_model_get_vocab(get());
    const auto length = static_cast<std::int32_t>(text.size());
    const auto into = [&](llama_token* tokens, std::int32_t room) {
        return llama_tokenize(vocabulary, text.data(), length, tokens, room, starts, false);
    };
    // Without room it says how much it needs, as a negative number.
    std::vector<llama_token> tokens(static_cast<std::size_t>(-into(nullptr, 0)));
    if (into(tokens.data(), static_cast<std::int32_t>(tokens.size())) < 0)
        throw std::runtime_error("llama.cpp cannot tokenize: " + text);
    return {tokens.begin(), tokens.end()};
}

bool Model::ends_reply(std::uint32_t token) const {
    return llama_vocab_is_eog(llama_model_get_vocab(get()), to_llama(token));
}

std::string Model::description() const {
    char text[128];
    llama_model_desc(get(), text, sizeof text);
    return text;
}

bool Model::is_recurrent() const { return llama_model_is_recurrent(get()); }

std::size_t Model::vocabulary_size() const {
    return static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(get())));
}

Sequence::Sequence(const Model& model, std::size_t longest, std::size_t thread_count)
    : vocabulary_size_(model.vocabulary_size()) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(longest);
    params.n_batch = params.n_ctx;  // a prompt in one call
    params.n_seq_max = 1;
    params.n_threads = static_cast<std::int32_t>(thread_count);
    params.n_threads_batch = params.n_threads;
    context_.reset(llama_init_from_model(model.get(), params));
    if (context_ == nullptr) throw std::runtime_error("llama.cpp cannot make a context");
}

void Sequence::clear() { llama_memory_clear(llama_get_memory(context_.get()), false); }

void Sequence::read(const std::uint32_t* ids, std::size_t count) {
    batch_.resize(count);
    std::transform(ids, ids + count, batch_.begin(), to_llama);
    // Positions go on from where the sequence is, and the last token gets logits.
    const llama_batch batch =
        llama_batch_get_one(batch_.data(), static_cast<std::int32_t>(count));
    if (llama_decode(context_.get(), batch) != 0)
        throw std::runtime_error("llama.cpp cannot read these tokens");
}

const float* Sequence::logits() const {
    const float* found = llama_get_logits_ith(context_.get(), -1);
    if (found == nullptr) throw std::runtime_error("llama.cpp has no logits");
    return found;
}

std::uint32_t Sequence::predict() const {
    const float* all = logits();
    return static_cast<std::uint32_t>(std::max_element(all, all + vocabulary_size_) - all);
}

std::uint64_t Sequence::prediction_digest() const {
    const float* all = logits();
    std::uint64_t digest = 1469598103934665603U;  // FNV-1a, a float at a time
    for (std::size_t i = 0; i < vocabulary_size_; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, &all[i], sizeof bits);
        digest = (digest ^ bits) * 1099511628211U;
    }
    return digest;
}

Bytes Sequence::save() const {
    Bytes state(llama_state_seq_get_size(context_.get(), only_sequence));
    const std::size_t written =
        llama_state_seq_get_data(context_.get(), state.data(), state.size(), only_sequence);
    if (written == 0 || written > state.size())
        throw std::runtime_error("llama.cpp cannot save the state");
    state.resize(written);
    return state;
}

void Sequence::restore(const Bytes& state) {
    clear();
    if (llama_state_seq_set_data(context_.get(), state.data(), state.size(), only_sequence) == 0)
        throw std::runtime_error("llama.cpp cannot restore the state");
}

}  // namespace example
