// A chat with a hybrid model, in C++: full attention, a sliding window and a recurrent state, each
// with pages of its own, over one prefix cache. The same loop stands in examples/c,
// examples/hybrid.rs and bindings/go/examples, and each prints the same text.
//
//     c++ -std=c++17 -Iinclude examples/cpp/hybrid.cpp -Ltarget/release -lradixkv -o hybrid
//     LD_LIBRARY_PATH=target/release ./hybrid
#include <radixkv.hpp>

#include <array>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

namespace {

enum : std::uint32_t { FULL, WINDOW, STATE, GROUPS };
constexpr std::uint32_t page_size = 16, window_size = 64, state_pages = 7;

using Pages = std::vector<std::uint32_t>;

/// The recurrent layers: the state after one more token.
std::uint64_t step(std::uint64_t state, std::uint32_t token) {
    return (state * 31 + token) % 1000003;
}

rkv_page_table_config config() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = page_size;
    return config;
}

class Engine {
public:
    Engine()
        : table_(config(),
                 {rkv::full_group(FULL), rkv::window_group(WINDOW, window_size),
                  rkv::state_group(STATE)},
                 {rkv::pool_of(65), rkv::pool_of(33), rkv::pool_of(state_pages)}),
          cache_(table_) {}

    void serve(const std::string& name, const Pages& ids) {
        const std::size_t pages = (ids.size() + page_size - 1) / page_size;
        // What each group costs of what is known; then the match, locked with all that it needs.
        const rkv::GroupProbe probe = cache_.probe_groups(ids);
        const rkv::Match match = cache_.match(ids, rkv::Namespace(), RKV_MATCH_LOCK);
        std::array<Pages, GROUPS> rows{Pages(pages), Pages(pages), Pages(pages)}, published = rows;
        std::copy(match.pages.begin(), match.pages.end(), rows[FULL].begin());
        std::vector<rkv_locked_page> window, checkpoint;
        if (match.lock) {
            window = cache_.locked_pages(match.lock, WINDOW);
            checkpoint = cache_.locked_pages(match.lock, STATE);
        }
        for (const rkv_locked_page& page : window) rows[WINDOW][page.page_index] = page.page;
        // A checkpoint is copied, never written to: the next request wants it too.
        std::uint64_t state = checkpoint.empty() ? 0 : states_[checkpoint[0].page];

        for (std::size_t i = match.pages.size(); i < pages; ++i) {
            rows[FULL][i] = allocate(FULL);
            rows[WINDOW][i] = allocate(WINDOW);
        }
        // Chunks end where the match says, and the states are saved there.
        const auto& saved = match.found.checkpoint_at;
        for (std::size_t at = match.found.position_count; at < ids.size(); ++at) {
            state = step(state, ids[at]);
            if (at + 1 != saved[0] && at + 1 != saved[1]) continue;
            rows[STATE][at / page_size] = allocate(STATE);
            states_[rows[STATE][at / page_size]] = state;
        }

        const rkv_cache_insert_result done =
            cache_.insert_groups(ids, rows[FULL],
                                 {{WINDOW, rows[WINDOW], published[WINDOW]},
                                  {STATE, rows[STATE], published[STATE]}},
                                 published[FULL]);
        // Whose page was not taken keeps it: for another one is published, or it is not full.
        for (std::uint32_t group = 0; group < GROUPS; ++group)
            for (std::size_t i = 0; i < pages; ++i) {
                const std::uint32_t mine = rows[group][i];
                const bool taken = published[group][i] == mine && i < ids.size() / page_size;
                if (mine != 0 && !taken) table_.free_pool_pages(group, {mine});
            }
        const auto lost = [&](std::uint32_t group) {
            return probe.costs[group].lost_position_count;
        };
        std::cout << name << ": " << ids.size() << " tokens, "
                  << probe.depths.known_position_count << " known, " << match.found.position_count
                  << " reused (full costs " << lost(FULL) << ", window " << lost(WINDOW)
                  << ", state " << lost(STATE) << ")\n   reads " << window.size()
                  << " window pages and " << checkpoint.size() << " states, saves states at "
                  << saved[0] << " and " << saved[1] << "\n   " << done.claimed_page_count
                  << " pages claimed, " << done.claimed_group_page_count
                  << " of other groups; state " << state << '\n';
    }

    void evict_states(std::size_t count) {
        std::cout << cache_.evict_pool(STATE, count)
                  << " states evicted, the least recently used\n";
    }

    void print_pool(const char* name, std::uint32_t pool) const {
        const rkv_pool_stats stats = table_.pool_stats(pool);
        std::cout << "   " << name << ": " << stats.free_page_count << " free, "
                  << stats.cached_page_count << " cached, " << stats.private_page_count
                  << " private\n";
    }

private:
    std::uint32_t allocate(std::uint32_t pool) { return table_.allocate_pool_pages(pool, 1)[0]; }

    rkv::PageTable table_;
    rkv::Cache cache_;
    /// The memory of the states, by page. K and V of the others are left to the imagination.
    std::array<std::uint64_t, state_pages> states_{};
};

/// A system prompt, then a question of one's own.
Pages prompt(std::uint32_t question, std::size_t length) {
    Pages ids(100 + length);
    std::iota(ids.begin(), ids.begin() + 100, 1u);
    std::iota(ids.begin() + 100, ids.end(), question);
    return ids;
}

}  // namespace

int main() {
    Engine engine;
    engine.serve("A", prompt(1000, 30));
    engine.serve("B", prompt(2000, 45));
    engine.serve("C", prompt(3000, 60));
    engine.serve("A, next turn", prompt(1000, 75));
    engine.print_pool("full", FULL);
    engine.print_pool("window", WINDOW);
    engine.print_pool("state", STATE);
    engine.evict_states(3);
    engine.serve("B again", prompt(2000, 45));
    engine.serve("A again", prompt(1000, 75));
}
