// With two.cpp one program: a function that is not inline would be defined twice. Each header is
// included twice, and alone in its turn before the one that includes them all.
#include <radixkv/cache.hpp>
#include <radixkv/cache.hpp>
#include <radixkv/error.hpp>
#include <radixkv/library.hpp>
#include <radixkv/namespace.hpp>
#include <radixkv/owned.hpp>
#include <radixkv/page_table.hpp>
#include <radixkv/plan.hpp>
#include <radixkv/runner.hpp>
#include <radixkv/sequence.hpp>
#include <radixkv/snapshot.hpp>
#include <radixkv/span.hpp>
#include <radixkv/token.hpp>

#include <radixkv.h>
#include <radixkv.h>
#include <radixkv.hpp>
#include <radixkv.hpp>

rkv::PageTable make_table();
std::uint64_t cached_after_publishing(rkv::Cache& cache);

int main() {
    rkv::PageTable table = make_table();
    rkv::Cache cache(table);
    if (cached_after_publishing(cache) != 2) return 1;
    return cache.probe({1, 2, 3, 4, 5, 6, 7, 8, 9}).token_count == 8 ? 0 : 2;
}
