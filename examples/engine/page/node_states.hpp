// What the journal does not tell of a cache: where its nodes end, who has them locked, when they
// were used. Read node by node, as any tool could, so that nobody waits for a reader of them all.
#ifndef ENGINE_PAGE_NODE_STATES_HPP
#define ENGINE_PAGE_NODE_STATES_HPP

#include <radixkv.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <unordered_map>

namespace engine {

/// A node is named by its last page: a page is in one node at a time.
class NodeStates {
public:
    using Json = nlohmann::json;

    /// Reads all nodes. {"nodes": [[last page, pages, locks, last access, hits], ...], "gone":
    /// [last page, ...]}, both without what was told before; null when nothing changed. What
    /// changes during the call is told by this one or the next.
    [[nodiscard]] Json changes(const rkv::Cache& cache);

private:
    struct State {
        std::uint64_t page_count, lock_count, last_access, hit_count;

        [[nodiscard]] bool operator==(const State& other) const noexcept {
            return page_count == other.page_count && lock_count == other.lock_count &&
                   last_access == other.last_access && hit_count == other.hit_count;
        }
    };
    using States = std::unordered_map<std::uint32_t, State>;

    States told_;

    static States read(const rkv::Cache& cache);
};

}  // namespace engine

#endif  // ENGINE_PAGE_NODE_STATES_HPP
