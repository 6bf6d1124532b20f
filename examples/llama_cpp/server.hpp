// Answers prompts, from the longest prefix whose state is in the snapshot cache.
#ifndef LLAMA_CPP_SERVER_HPP
#define LLAMA_CPP_SERVER_HPP

#include "sequence.hpp"

#include <radixkv.hpp>

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

namespace example {

/// Counts the states that live, and knows each: one that is destroyed twice, or never, shows.
class Census {
public:
    void born(const void* state);
    void died(const void* state);

    [[nodiscard]] std::size_t born_count() const noexcept { return born_count_; }
    [[nodiscard]] std::size_t died_count() const noexcept { return died_count_; }
    /// Whether each that was born died exactly once.
    [[nodiscard]] bool balanced() const noexcept { return alive_.empty() && strange_count_ == 0; }

private:
    std::unordered_set<const void*> alive_;
    std::size_t born_count_ = 0, died_count_ = 0, strange_count_ = 0;
};

/// What the cache keeps: a state of the sequence, in a census from its first moment to its last.
class SequenceState {
public:
    SequenceState(Bytes bytes, Census& census) : bytes_(std::move(bytes)), census_(&census) {
        census_->born(this);
    }
    ~SequenceState() { census_->died(this); }
    SequenceState(const SequenceState&) = delete;
    SequenceState& operator=(const SequenceState&) = delete;

    [[nodiscard]] const Bytes& bytes() const noexcept { return bytes_; }

private:
    Bytes bytes_;
    Census* census_;
};

using StateCache = rkv::TypedSnapshotCache<SequenceState>;

/// A prompt, and where in it other prompts may part from it.
struct Prompt {
    Ids ids;
    /// Ends of the system prompt and of each turn, rising; the last is the prompt's end.
    std::vector<std::size_t> cuts;
};

/// What became of a prompt.
struct Reply {
    std::size_t prompt_count = 0;
    /// Of its tokens, how many did not have to be read.
    std::size_t restored_count = 0;
    double ttft_seconds = 0;
    Ids tokens;
    /// Digests of the probabilities behind each token; 0 where none had to be computed.
    std::vector<std::uint64_t> digests;
};

/// Generates greedily, one prompt at a time.
class Server {
public:
    /// Without a cache it reads every prompt from its first token on.
    Server(const Model& model, Sequence& sequence, StateCache* cache, Census& census)
        : model_(model), sequence_(sequence), cache_(cache), census_(census) {}

    /// The reply to a prompt: so many tokens at most.
    Reply complete(const Prompt& prompt, std::size_t most);

private:
    /// Leaves the sequence at the end of the prompt; returns the first token of the reply.
    std::uint32_t prefill(const Prompt& prompt, Reply& reply);
    /// Gives the cache the state after the first tokens of a prompt.
    void store(const Prompt& prompt, std::size_t count, std::uint32_t next_token);

    const Model& model_;
    Sequence& sequence_;
    StateCache* cache_;
    Census& census_;
};

}  // namespace example

#endif  // LLAMA_CPP_SERVER_HPP
