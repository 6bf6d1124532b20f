// The story of two requests that share a system prompt and an image, in C++. The same story stands
// in examples/c, examples/story.rs and bindings/go/examples, and each prints the same text.
//
//     c++ -std=c++17 -Iinclude examples/cpp/story.cpp -Ltarget/release -lradixkv -o story
//     LD_LIBRARY_PATH=target/release ./story
#include <radixkv.hpp>

#include <cstdint>
#include <iostream>
#include <numeric>
#include <vector>

namespace {

constexpr std::uint32_t page_size = 16;
constexpr std::uint32_t page_count = 16;

std::vector<std::uint32_t> ids(std::uint32_t first, std::uint32_t count) {
    std::vector<std::uint32_t> out(count);
    std::iota(out.begin(), out.end(), first);
    return out;
}

/// The system prompt, the image, and a question. The image is one token that takes 50 positions;
/// its digest is its identity.
rkv::Tokens make_prompt(const std::vector<std::uint32_t>& question) {
    rkv::Tokens prompt;
    prompt.text(ids(1, 40)).image(rkv::image_digest("a picture of a cat", 18), 50).text(question);
    return prompt;
}

rkv::Sequence begin(rkv::Cache& cache, rkv::TokenView prompt) {
    rkv::Sequence sequence = cache.begin(prompt);
    const rkv_sequence_info state = sequence.info();
    std::cout << "   begin: " << state.cached_position_count << " positions reused, "
              << state.page_count << " pages in the row, " << state.shared_page_count
              << " of them shared\n";
    return sequence;
}

void publish(rkv::Sequence& sequence, std::uint64_t computed) {
    const rkv_sequence_publish_result result = sequence.publish(computed);
    std::cout << "   publish: " << result.claimed_page_count << " pages claimed, "
              << result.shared_page_count << " pages of the row shared\n";
}

void print_pages(const rkv::PageTable& table) {
    const rkv_page_table_stats stats = table.stats();
    std::cout << "   pages: " << stats.free_page_count << " free, " << stats.cached_page_count
              << " cached, " << stats.private_page_count << " private; "
              << stats.reclaimable_page_count << " reclaimable\n";
}

void tell() {
    // Page 0 is reserved for padding, so a pool of 16 pages has 17.
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = page_size;
    config.page_count = page_count + 1;
    rkv::PageTable table(config);
    rkv::Cache cache(table);
    std::cout << "1. A page table of " << page_count << " pages of " << page_size
              << " positions, and a cache on it\n";
    print_pages(table);

    // Nothing is cached yet. begin() takes a slot and a private page per 16 positions. Then the
    // engine computes all positions, and publishes: whole pages become the cache's.
    const rkv::Tokens a = make_prompt(ids(100, 12));
    std::cout << "2. Request A: " << a.count() << " tokens, " << a.view().position_count()
              << " positions\n"
              << "   probe: " << cache.probe(a).position_count << " positions cached\n";
    rkv::Sequence sequence_a = begin(cache, a);
    publish(sequence_a, a.view().position_count());

    // The shared beginning ends inside a page. Whole pages are mapped; of the next one the engine
    // copies what matched, in every layer, since nobody may write to a page of the cache.
    const rkv::Tokens b = make_prompt(ids(200, 20));
    std::cout << "3. Request B, same image, other question: " << b.count() << " tokens, "
              << b.view().position_count() << " positions\n"
              << "   probe: " << cache.probe(b).position_count << " positions cached\n";
    rkv::Sequence sequence_b = begin(cache, b);
    rkv_sequence_info state = sequence_b.info();
    const rkv_page_copy copy = sequence_b.copies().at(0);
    std::cout << "   copy: " << copy.position_count
              << " positions into a private page; compute from token " << state.cached_token_count
              << " on\n";
    sequence_b.confirm_copies();
    publish(sequence_b, b.view().position_count());

    // Decode: a token at a time; a page is allocated when one is full. Generated tokens can be
    // published too.
    for (std::uint32_t decoded : ids(1000, 20)) sequence_b.append(decoded);
    state = sequence_b.info();
    std::cout << "4. B decodes 20 tokens: " << state.position_count << " positions, "
              << state.page_count << " pages in the row\n";
    publish(sequence_b, state.position_count);

    // One step over both: the arrays that paged attention kernels take.
    const auto row = [](const rkv_sequence_info& s) {
        return rkv_page_table_batch_row{s.slot, static_cast<std::uint32_t>(s.position_count)};
    };
    const rkv::Batch batch = table.batch({row(sequence_a.info()), row(state)});
    std::cout << "5. A batch of both: indptr " << batch.indptr[0] << ' ' << batch.indptr[1] << ' '
              << batch.indptr[2] << ", last page lengths " << batch.last_page_len[0] << ' '
              << batch.last_page_len[1] << '\n';
    print_pages(table);

    // A request that does not fit is refused whole, and told why: everything cached is in use.
    const std::vector<std::uint32_t> c = ids(5000, 150);
    std::cout << "6. Request C: " << c.size() << " tokens of its own\n";
    try {
        const rkv::Sequence refused = cache.begin(c);
    } catch (const rkv::OutOfPages& error) {
        const rkv_shortage& shortage = error.shortage();
        std::cout << "   refused: " << shortage.needed_page_count << " pages needed, "
                  << shortage.free_page_count << " free, " << shortage.reclaimable_page_count
                  << " reclaimable, " << shortage.locked_page_count << " locked, "
                  << shortage.private_page_count << " private\n";
    }

    // Private pages return to the pool. What was published stays cached, and may be evicted now.
    sequence_a.reset();
    sequence_b.reset();
    std::cout << "7. A and B are released\n";
    print_pages(table);
    const rkv_cache_stats stats = cache.stats();
    std::cout << "   cache: " << stats.lookup_count << " lookups for "
              << stats.lookup_position_count << " positions, " << stats.hit_position_count
              << " found, " << stats.partial_hit_position_count << " of them by copy\n";

    // Now it fits: what was used longest ago is evicted, page by page, no more than needed.
    std::cout << "8. Request C again\n";
    {
        const rkv::Sequence sequence_c = begin(cache, c);
        print_pages(table);
    }  // a sequence that goes out of scope is released
    std::cout << "   still cached: " << cache.probe(a).position_count << " positions of A, "
              << cache.probe(b).position_count << " of B\n";

    // Eviction on demand reports its victims, for an engine that moves them elsewhere.
    const std::vector<std::uint32_t> evicted = cache.evict_reported(page_count);
    std::cout << "9. Evicted by hand: " << evicted.size() << " pages\n";
    print_pages(table);
    table.check_invariants();
    cache.check_invariants();
    std::cout << "   audit: every page is in exactly one state\n";
}

}  // namespace

int main() {
    try {
        rkv::require_version();
        tell();
    } catch (const rkv::Error& error) {
        std::cerr << rkv::status_name(error.status()) << ": " << error.what() << '\n';
        return 1;
    }
    return 0;
}
