// The other half of one.cpp.
#include <radixkv.hpp>

rkv::PageTable make_table();
std::uint64_t cached_after_publishing(rkv::Cache& cache);

rkv::PageTable make_table() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_count = 9;
    config.page_size = 4;
    return rkv::PageTable(config);
}

std::uint64_t cached_after_publishing(rkv::Cache& cache) {
    rkv::Sequence sequence = cache.begin({1, 2, 3, 4, 5, 6, 7, 8, 9});
    sequence.publish(9);
    return cache.stats().cached_page_count;
}
