// What a cache holds and what happens to it, as server-sent events: all that there is, then each
// change, from the journal.
#ifndef ENGINE_PAGE_CACHE_EVENTS_HPP
#define ENGINE_PAGE_CACHE_EVENTS_HPP

#include "page/node_states.hpp"
#include "serve/core.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>

namespace engine {

/// One reader, on a thread of its own, with its own place in the journal. Nothing waits for it, and
/// nothing is queued for it but what the journal's ring holds anyway: a reader for whom that was
/// too short begins again with all that there is.
///
///   snapshot  forget everything; what follows is all there is. The groups of layers
///   records   pages stored, removed, cleared, in order, each of one group; what each token id says
///             that is new
///   exact     from here on the picture is that of the cache, after each event
///   nodes     where nodes end, their locks and when they were used; and those that are none now
///   stats     counters
class CacheEvents {
public:
    /// The core, whose cache must have a journal, outlives it.
    explicit CacheEvents(const Core& core) : core_(core) {}

    /// Some of what is new; empty when nothing is.
    [[nodiscard]] std::string next();
    /// How often the ring was too short.
    [[nodiscard]] std::size_t lost_count() const noexcept { return lost_count_; }

private:
    using Json = nlohmann::json;

    const Core& core_;
    rkv::JournalBuffers buffers_;
    /// Where contents go on, while they are being told.
    bool tells_contents_ = true;
    std::uint32_t next_page_ = 0;
    /// The last record that is known, and the one from which on the picture is exact.
    std::uint64_t number_ = 0, exact_number_ = 0;
    bool exact_ = false;
    std::size_t lost_count_ = 0;
    /// Token ids whose word was told.
    std::unordered_set<std::uint32_t> words_;
    NodeStates nodes_;
    /// Counters of the cache when its nodes were read last, and before when they aren't again.
    std::string nodes_read_at_;
    Clock::time_point nodes_due_;
    std::string stats_told_;

    [[nodiscard]] std::string contents();
    [[nodiscard]] std::string changes();
    [[nodiscard]] std::string nodes();
    [[nodiscard]] std::string stats();
    [[nodiscard]] std::string records();
    /// Puts the words of tokens that are new into a record: {"words": ..., "special": ...}.
    void add_words(rkv::span<const std::uint32_t> tokens, Json& to);
};

}  // namespace engine

#endif  // ENGINE_PAGE_CACHE_EVENTS_HPP
