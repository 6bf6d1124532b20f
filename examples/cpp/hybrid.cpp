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

class Engine {
public:
    /// A system prompt of 100 tokens, then a question of one's own.
    void serve(const std::string& name, std::uint32_t question, std::size_t length) {
        std::vector<std::uint32_t> ids(length);
        std::iota(ids.begin() + 100, ids.end(), question + 100);
        rkv_sequence_info info;
        rkv::Sequence sequence = cache_.begin(ids, rkv::Namespace(), 0, &info);

        std::uint32_t& state = states_[sequence.group_row(STATE)[0]];
        if (info.cached_position_count == 0) state = 1;
        for (std::uint64_t at = info.cached_position_count; at < length;) {
            // What it waits for: states, since the others are shared as whole pages.
            sequence.carry_out_copies([this](const rkv_page_copy& copy) {
                states_[copy.target_page] = states_[copy.source_page];
            });
            // Chunks end where begin says: there the states are saved.
            const auto& save = info.checkpoint_at;
            const std::uint64_t end = save[0] > at ? save[0] : save[1] > at ? save[1] : length;
            for (; at < end; ++at) state = (state * 31 + ids[at]) % 1000003;
            sequence.publish(at);
            if (at < length) sequence.checkpoint();
        }
        std::cout << name << ": " << length << " tokens, " << info.known_position_count
                  << " known, " << info.cached_position_count << " reused; state " << state << '\n';
    }

private:
    rkv::PageTable table_{rkv::PageTable::config(),
                          {rkv::full_group(FULL), rkv::window_group(WINDOW, 64),
                           rkv::state_group(STATE)},
                          {rkv::pool_of(65), rkv::pool_of(33), rkv::pool_of(8)}};
    rkv::Cache cache_{table_};
    /// The memory of the states, by page. K and V of the others are left to the imagination.
    std::array<std::uint32_t, 8> states_{};
};

}  // namespace

int main() {
    Engine engine;
    engine.serve("A", 1000, 130);
    engine.serve("B", 2000, 145);
    engine.serve("C", 3000, 160);
    engine.serve("A, next turn", 1000, 175);
}
