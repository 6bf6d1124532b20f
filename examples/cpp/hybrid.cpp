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

enum : std::uint32_t { FULL, WINDOW, STATE };

rkv_page_table_config config() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = 16;
    return config;
}

class Engine {
public:
    /// A system prompt of 100 tokens, then a question of one's own.
    void serve(const std::string& name, std::uint32_t question, std::size_t length) {
        std::vector<std::uint32_t> ids(100 + length);
        std::iota(ids.begin(), ids.begin() + 100, 1u);
        std::iota(ids.begin() + 100, ids.end(), question);
        rkv_sequence_info info;
        rkv::Sequence sequence = cache_.begin(ids, rkv::Namespace(), 0, &info);
        if (info.copy_count > 0) copy_states(sequence);

        std::size_t saved = 0;
        std::uint64_t& state = states_[sequence.group_row(STATE)[0]];
        if (info.cached_position_count == 0) state = 0;
        for (std::uint64_t at = info.cached_position_count; at < ids.size();) {
            // Chunks end where begin says: there the states are saved.
            const auto& save = info.checkpoint_at;
            const std::uint64_t end = save[0] > at ? save[0] : save[1] > at ? save[1] : ids.size();
            for (; at < end; ++at) state = (state * 31 + ids[at]) % 1000003;
            sequence.publish(at);
            if (at != save[0] && at != save[1]) continue;
            const std::size_t copy_count = sequence.checkpoint();
            if (copy_count > 0) copy_states(sequence);
            saved += copy_count;
        }
        std::cout << name << ": " << ids.size() << " tokens, " << info.known_position_count
                  << " known, " << info.cached_position_count << " reused; " << saved
                  << " states saved; state " << state << '\n';
    }

private:
    /// Carries out what a sequence waits for: states, since the others are shared as whole pages.
    void copy_states(rkv::Sequence& sequence) {
        for (const rkv_page_copy& copy : sequence.copies())
            states_[copy.target_page] = states_[copy.source_page];
        sequence.confirm_copies();
    }

    rkv::PageTable table_{config(),
                          {rkv::full_group(FULL), rkv::window_group(WINDOW, 64),
                           rkv::state_group(STATE)},
                          {rkv::pool_of(65), rkv::pool_of(33), rkv::pool_of(8)}};
    rkv::Cache cache_{table_};
    /// The memory of the states, by page. K and V of the others are left to the imagination.
    std::array<std::uint64_t, 8> states_{};
};

}  // namespace

int main() {
    Engine engine;
    engine.serve("A", 1000, 30);
    engine.serve("B", 2000, 45);
    engine.serve("C", 3000, 60);
    engine.serve("A, next turn", 1000, 75);
    engine.serve("B again", 2000, 45);
}
