// Finished requests that others may go on from: what the library retains of them, by the ids that
// clients know, with the tokens that the engine needs when a child has to be computed again.
#ifndef ENGINE_SERVE_RETAINED_HPP
#define ENGINE_SERVE_RETAINED_HPP

#include "serve/request.hpp"

#include <radixkv.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace engine {

/// A retained sequence.
struct Parent {
    rkv_sequence_id sequence = 0;
    /// Of its tokens, those that the library knows of: all but the one generated last.
    std::size_t sequence_tokens = 0;
    std::shared_ptr<const std::vector<std::uint32_t>> tokens;
    std::string cache_salt;
    rkv::Namespace name_space;
};

/// The library bounds how many there are, see rkv_cache_config: beyond that the first to finish
/// gives way. Any thread.
class Retained {
public:
    explicit Retained(rkv::Cache& cache) : cache_(cache) {}

    /// What is retained under an id; nothing when nothing is (any more). Throws ParentRunning.
    [[nodiscard]] std::optional<Parent> find(const std::string& id) const;
    /// The same for a continuation that was accepted: only the parent of that time counts.
    [[nodiscard]] std::optional<Parent> parent_of(const Continuation& continuation) const;
    /// A request that is to be retained is here.
    void expect(const std::string& request);
    /// It ended; whoever asks for it from now on gets what put() was told.
    void settle(const std::string& request);
    /// Ends a sequence and keeps it; whoever had the id before is forgotten. False if it is too
    /// large: it was released then.
    [[nodiscard]] bool put(const std::string& id, rkv::Sequence& sequence, Parent parent);
    /// Drops one. False if there is none.
    bool drop(const std::string& id);
    /// Drops the first to finish, at least one, until that many more pages of a pool are available.
    /// False if there was none.
    bool make_room(std::uint32_t pool, std::size_t page_count);

private:
    rkv::Cache& cache_;
    mutable std::mutex mutex_;
    std::set<std::string> running_;
    std::unordered_map<std::string, Parent> parents_;
    /// Ids of all parents, the first to finish at the front: the order in which they give way.
    std::deque<std::string> order_;

    /// Of one that the library does not retain (any more).
    void forget(const std::string& id);
    void forget_displaced();
};

}  // namespace engine

#endif  // ENGINE_SERVE_RETAINED_HPP
