// What the C++ tests need to say what they expect. The first failure ends the program.
#ifndef RADIXKV_TESTS_CHECK_HPP
#define RADIXKV_TESTS_CHECK_HPP

#include <radixkv.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace test {

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
    std::exit(1);
}

template <class A, class B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
    if (a == b) return;
    std::cerr << a << " and " << b << '\n';
    fail(file, line, std::string("not equal: ") + text);
}

/// Runs f, which must throw an rkv::Error with this status and a message; returns the message.
template <class F> std::string thrown(rkv_status status, F f, const char* file, int line) {
    try {
        f();
    } catch (const rkv::Error& error) {
        if (error.status() != status)
            fail(file, line, std::string("threw ") + rkv::status_name(error.status()));
        if (error.what()[0] == '\0') fail(file, line, "threw without a message");
        return error.what();
    }
    fail(file, line, std::string("did not throw ") + rkv::status_name(status));
}

/// `count` text ids from `first` on.
inline std::vector<std::uint32_t> ids(std::uint32_t first, std::uint32_t count) {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < count; ++i) out.push_back(first + i);
    return out;
}

inline rkv::PageTable table(std::uint32_t page_count, std::uint32_t page_size,
                            std::uint32_t slot_count = 4) {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_count = page_count;
    config.page_size = page_size;
    config.slot_count = slot_count;
    return rkv::PageTable(config);
}

/// K19: every page is in one state, and the index is sound.
inline void audit(const rkv::PageTable& pages, const rkv::Cache& cache) {
    pages.check_invariants();
    cache.check_invariants();
    const auto stats = pages.stats();
    if (stats.free_page_count + stats.cached_page_count + stats.private_page_count +
            stats.outside_page_count !=
        stats.total_page_count)
        fail("audit", 0, "free + cached + private + outside != total");
}

}  // namespace test

#define CHECK(condition) \
    ((condition) ? (void)0 : test::fail(__FILE__, __LINE__, "not so: " #condition))
#define CHECK_EQ(a, b) test::equal((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_THROWS(status, ...) \
    test::thrown((status), [&] { __VA_ARGS__; }, __FILE__, __LINE__)

#endif  // RADIXKV_TESTS_CHECK_HPP
