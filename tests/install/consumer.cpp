// The C++ interface from an installed package.
#include <cstdio>
#include <radixkv.hpp>

int main() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_count = 8;
    rkv::PageTable table(config);
    rkv::Cache cache(table);
    if (table.stats().free_page_count != 7) return 1;
    std::printf("radixkv %s\n", rkv_version_string());
}
