// T02, T09, T16, T18: tiers below the pages of a cache in C++.
#include "check.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using test::ids;

constexpr std::size_t bytes = 32;

struct Engine {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache = made(table);
    std::vector<std::uint8_t> kv = std::vector<std::uint8_t>(34 * bytes);
    std::vector<rkv_fetch_end> ended;

    static rkv::Cache made(rkv::PageTable& table) {
        rkv_cache_config config = rkv::Cache::config();
        config.journal_bytes = 1 << 16;
        return rkv::Cache(table, config);
    }

    void step() {
        rkv_copy_job jobs[4];
        rkv_fetch_end ends[4];
        const rkv_cache_poll_result got = cache.poll(jobs, ends);
        for (std::size_t i = 0; i < got.end_count; ++i) ended.push_back(ends[i]);
        for (std::size_t i = 0; i < got.job_count; ++i) {
            std::uint8_t* page = kv.data() + jobs[i].page * bytes;
            if (jobs[i].direction == RKV_COPY_LOAD) std::memcpy(page, jobs[i].host, bytes);
            if (jobs[i].direction == RKV_COPY_STORE) std::memcpy(jobs[i].host, page, bytes);
            cache.complete({jobs[i].job});
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
};

void pages_come_back() {
    for (const std::uint32_t flags : {std::uint32_t{0}, std::uint32_t{RKV_TIERS_AGREE}}) {
        Engine e;
        rkv_tier_config config = rkv::Cache::tier_config();
        config.page_bytes = bytes;
        config.host_bytes = 16 * bytes;
        config.flags = flags;
        e.cache.attach_tiers(config);
        CHECK_THROWS(RKV_STATUS_INVALID_STATE, e.cache.attach_tiers(config));
        const auto prompt = ids(1, 17);
        {
            rkv_sequence_info state{};
            rkv::Sequence first = e.cache.begin(prompt, {}, 0, &state);
            (void)first.publish(state.position_count);
        }
        while (e.cache.tier_stats().host.stored_page_count < 4) e.step();
        CHECK(e.cache.evict(4) == 4);
        CHECK(e.cache.prefetch(prompt, {}, UINT64_MAX, RKV_FETCH_LOOK_ONLY).prefetch == 0);
        const auto begun = e.cache.prefetch(prompt);
        CHECK(begun.host_position_count == 16 && begun.prefetch != 0);
        e.cache.cancel_prefetch(begun.prefetch);
        CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, e.cache.cancel_prefetch(0));
        rkv::Sequence again = e.cache.begin(prompt);
        CHECK(again.fetch(0, RKV_FETCH_LOOK_ONLY).host_position_count == 16);
        CHECK(again.fetch().is_open == 1);
        CHECK_THROWS(RKV_STATUS_PENDING, (void)again.publish(1));
        while (e.ended.empty()) e.step();
        CHECK(e.ended[0].position_count == 16 && e.ended[0].brought_page_count == 4);
        if (flags != 0) CHECK(again.agree(9) == 8);
        CHECK(again.info().cached_position_count == (flags != 0 ? 8 : 16));
        e.cache.shrink_tiers(UINT64_MAX);
        CHECK(e.cache.tier_stats().host.page_count > 1);
        e.cache.shrink_tiers(e.cache.tier_stats().host.used_bytes / 4);
        CHECK(e.cache.tier_stats().host.page_count == 1);
        CHECK(e.cache.flush_tiers(1000));
        CHECK(e.cache.detach_tiers(1000));
        CHECK_THROWS(RKV_STATUS_INVALID_STATE, (void)e.cache.flush_tiers(0));
        CHECK_THROWS(RKV_STATUS_INVALID_STATE, e.cache.shrink_tiers(0));
    }
}

/// T16: each pool has pages of a size of its own.
void pools_are_told_one_by_one() {
    rkv_page_table_config table_config = rkv::PageTable::config();
    table_config.page_size = 4;
    table_config.slot_count = 4;
    rkv::PageTable table(table_config,
                         std::vector<rkv_group_config>{rkv::full_group(), rkv::window_group(1, 6)},
                         std::vector<rkv_pool_config>{rkv::pool_of(20), rkv::pool_of(20)});
    rkv::Cache cache = Engine::made(table);
    rkv_tier_config config = rkv::Cache::tier_config();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, cache.attach_tiers(config));
    const std::vector<rkv_tier_pool_config> pools = {{bytes, 16 * bytes, nullptr},
                                                     {8, 16 * 8, nullptr}};
    config.pool_size = 0;  // as a library fills in whose elements are others than these
    cache.attach_tiers(config, pools);
    rkv_sequence_info state{};
    rkv::Sequence first = cache.begin(ids(1, 17), {}, 0, &state);
    (void)first.publish(state.position_count);
    std::size_t counts[2] = {0, 0};
    while (counts[0] + counts[1] < 8) {
        rkv_copy_job jobs[8];
        const rkv_cache_poll_result got = cache.poll(jobs, {});
        for (std::size_t i = 0; i < got.job_count; ++i) {
            CHECK(jobs[i].byte_count == (jobs[i].group == 0 ? bytes : 8));
            ++counts[jobs[i].group];
            cache.complete({jobs[i].job});
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(counts[0] == 4 && counts[1] == 4);
}

}  // namespace

int main() {
    pages_come_back();
    pools_are_told_one_by_one();
}
