// Chats that begin with the same system prompt, and what it cost to answer them.
#ifndef LLAMA_CPP_CHAT_HPP
#define LLAMA_CPP_CHAT_HPP

#include "server.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace example {

/// What is asked of the server.
struct Workload {
    std::size_t chat_count = 3, turn_count = 4;
    std::size_t reply_count = 24;  ///< tokens of a reply, at most
    /// The longest that a chat can get, in tokens.
    [[nodiscard]] std::size_t longest(const Model& model) const;
};

/// One request of a round.
struct Request {
    std::size_t chat = 0, turn = 0;
    bool again = false;  ///< the last prompt of a chat a second time
    Reply reply;
};

/// All requests, with one cache.
struct Round {
    std::vector<Request> requests;
    double seconds = 0;  ///< for all of them, replies and snapshots too
    std::uint64_t most_bytes = 0;  ///< of all snapshots, after any request
    rkv_snapshot_cache_stats stats{};  ///< after the last; zeros without a cache
    std::size_t born_count = 0, died_count = 0;
    bool balanced = false;  ///< each snapshot was destroyed exactly once
};

/// Answers the workload: the chats take turns, then each asks its last question again. Without
/// limits there is no cache.
Round run(const Model& model, Sequence& sequence, const Workload& workload,
          const rkv_snapshot_cache_config* limits);

}  // namespace example

#endif  // LLAMA_CPP_CHAT_HPP
