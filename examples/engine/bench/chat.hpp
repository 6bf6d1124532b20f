// Several users who chat about one long system prompt, a turn at a time.
#ifndef ENGINE_BENCH_CHAT_HPP
#define ENGINE_BENCH_CHAT_HPP

#include "bench/client.hpp"
#include "bench/run.hpp"
#include "bench/workload.hpp"
#include "serve/tokenizer.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace engine {

struct ChatScript {
    struct User {
        std::string name;
        /// One for each turn.
        std::vector<std::string> questions;
    };
    std::string system;
    /// They take turns: the first question of each, then the second.
    std::vector<User> users;
    /// Tokens of an answer at most.
    std::size_t max_output = 0;
    /// Turns of all users together at most.
    std::size_t turn_count = 0;
};

/// Visitors of a public library. The options' max_output bounds an answer, request_count the turns.
[[nodiscard]] ChatScript library_chat(const WorkloadOptions& options);

/// A run and the requests of which it consisted: each has the answers before it in its prompt.
struct ChatRun {
    Workload workload;
    BenchRun run;
};

/// Sends a turn when the one before is answered. `say` gets a line for each turn as it happens: its
/// question when it is sent, the rest with the answer. Throws std::runtime_error when a request
/// fails.
[[nodiscard]] ChatRun run_chat(const ChatScript& script, Client& client,
                               const Tokenizer& tokenizer, std::string label,
                               const std::function<void(const std::string&)>& say);

}  // namespace engine

#endif  // ENGINE_BENCH_CHAT_HPP
