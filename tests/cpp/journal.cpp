// J01, J02: the journal in C++: a consumer that follows a cache, and starts again after a gap.
#include "check.hpp"

#include <cstddef>
#include <map>
#include <utility>

namespace {

using test::ids;

rkv::Cache cache_with_journal(rkv::PageTable& table, std::uint64_t journal_bytes) {
    rkv_cache_config config = rkv::Cache::config();
    config.journal_bytes = journal_bytes;
    return rkv::Cache(table, config);
}

void serve(rkv::Cache& cache, rkv::TokenView tokens, const rkv::Namespace& ns = {}) {
    rkv_sequence_info state{};
    rkv::Sequence sequence = cache.begin(tokens, ns, 0, &state);
    if (state.copy_count > 0) sequence.confirm_copies();
    (void)sequence.publish(state.position_count);
}

// Follows a cache: the first token of each page that it holds.
class Follower {
public:
    std::map<std::uint32_t, std::uint32_t> held;
    int starts = 0;

    explicit Follower(const rkv::Cache& cache) { start(cache); }

    void follow(const rkv::Cache& cache) {
        for (;;) {
            const auto read = cache.read_journal(number_, buffers_);
            if (read.lost_count > 0) {
                start(cache);
                continue;
            }
            apply();
            number_ = read.last_number;
            if (number_ == read.newest_number) return;
        }
    }

private:
    void start(const rkv::Cache& cache) {
        ++starts;
        held.clear();
        std::uint32_t next = 0;
        bool first = true;
        do {
            const auto told = cache.read_contents(next, buffers_);
            apply();
            if (std::exchange(first, false)) number_ = told.number;
            next = told.next_page;
        } while (next != 0);
    }

    void apply() {
        for (std::size_t i = 0; i < buffers_.size(); ++i) {
            const rkv::JournalRecord record = buffers_[i];
            const std::size_t pages = record.pages.size();
            for (std::size_t at = 0; at < pages; ++at) {
                if (record.raw->kind == static_cast<std::uint32_t>(RKV_JOURNAL_STORED))
                    held[record.pages[at]] = record.tokens[at * (record.tokens.size() / pages)];
                else
                    held.erase(record.pages[at]);
            }
        }
    }

    std::uint64_t number_ = 0;
    // So little that it has to grow.
    rkv::JournalBuffers buffers_{1, 1, 1, 0};
};

void check_held(const rkv::Cache& cache, const Follower& follower) {
    CHECK_EQ(follower.held.size(), cache.stats().cached_page_count);
    for (const auto& page : follower.held) CHECK(cache.contains_page(page.first));
}

void j01_says_what_came_and_what_left() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache = cache_with_journal(table, 1 << 16);
    const rkv::Namespace ns = rkv::Namespace().lora(3).epoch(2);
    const auto text = ids(100, 8);
    serve(cache, text, ns);
    CHECK_EQ(cache.evict(1), 1u);
    rkv::JournalBuffers buffers;
    const auto read = cache.read_journal(0, buffers);
    CHECK_EQ(read.record_count, 2u);
    CHECK_EQ(buffers.size(), 2u);
    const rkv::JournalRecord stored = buffers[0];
    CHECK_EQ(stored.pages.size(), 2u);
    CHECK_EQ(stored.tokens.size(), 8u);
    CHECK_EQ(stored.tokens[7], 107u);
    CHECK_EQ(cache.probe(text, stored.ns()).token_count, 4u);
    const rkv::JournalRecord removed = buffers[1];
    CHECK_EQ(removed.raw->reason, static_cast<std::uint32_t>(RKV_REASON_CALLER));
    CHECK_EQ(removed.pages[0], stored.pages[1]);

    cache.reset();
    CHECK_EQ(table.read_journal(2, buffers).record_count, 1u);
    CHECK_EQ(buffers[0].raw->reason, static_cast<std::uint32_t>(RKV_REASON_DESTROYED));
    CHECK_EQ(buffers[0].pages[0], 1u);
}

// Which one, so that a router need not drop what others have.
void j01_says_which_namespace_was_cleared() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache = cache_with_journal(table, 1 << 16);
    const rkv::Namespace ns = rkv::Namespace().lora(3).epoch(2);
    serve(cache, ids(100, 8), ns);
    serve(cache, ids(100, 8));
    rkv::JournalBuffers buffers;
    const std::uint64_t last = cache.read_journal(0, buffers).last_number;
    CHECK_EQ(cache.clear(ns, RKV_CLEAR_NAMESPACE).namespace_count, 1u);
    (void)cache.read_journal(last, buffers);
    const rkv::JournalRecord cleared = buffers[0];
    CHECK_EQ(cleared.raw->kind, static_cast<std::uint32_t>(RKV_JOURNAL_CLEARED));
    CHECK_EQ(cleared.raw->reason, static_cast<std::uint32_t>(RKV_REASON_INVALIDATED));
    CHECK_EQ(cleared.pages.size(), 0u);
    CHECK_EQ(cleared.ns().get()->lora_id, 3u);
    CHECK_EQ(cleared.ns().get()->epoch, 2u);
}

void j02_a_follower_knows_what_is_held() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache = cache_with_journal(table, 1024 + 4 * 256);
    Follower follower(cache);
    for (std::uint32_t round = 0; round < 200; ++round) {
        serve(cache, ids(round % 7 * 50, 4 + round % 23));
        if (round % 5 == 0) (void)cache.evict(round % 9);
        // Now and then it looks so seldom that records are lost.
        if (round < 60 || round % 50 == 0) {
            follower.follow(cache);
            check_held(cache, follower);
        }
    }
    follower.follow(cache);
    check_held(cache, follower);
    CHECK(follower.starts > 1);
    test::audit(table, cache);
}

void refuses_without_a_journal() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    rkv::JournalBuffers buffers;
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, (void)cache.read_journal(0, buffers));
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, (void)cache.read_contents(0, buffers));
    rkv::PageTable other = test::table(33, 4);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache_with_journal(other, 100));
}

// J01: buffers without any room, and those that were moved from, grow like others.
void buffers_without_room_grow() {
    rkv::PageTable table = test::table(41, 4);
    rkv::Cache cache = cache_with_journal(table, 1 << 16);
    serve(cache, ids(1, 12));
    rkv::JournalBuffers none(0, 0, 0, 0);
    rkv_cache_read_journal_result read = cache.read_journal(0, none);
    CHECK(none.size() > 0);
    CHECK_EQ(none[0].tokens[0], 1u);
    CHECK(read.last_number > 0);
    const rkv::JournalBuffers moved = std::move(none);
    CHECK(moved.size() > 0);
    CHECK_EQ(none.size(), 0u);  // NOLINT(bugprone-use-after-move): it is empty, and grows again
    read = cache.read_journal(0, none);
    CHECK_EQ(none[0].tokens[0], 1u);
}

}  // namespace

int main() {
    j01_says_what_came_and_what_left();
    j01_says_which_namespace_was_cleared();
    j02_a_follower_knows_what_is_held();
    refuses_without_a_journal();
    buffers_without_room_grow();
}
