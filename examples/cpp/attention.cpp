// Attention by the library, in C++: a toy model computes a prompt in chunks, a second prompt reuses
// the start of the first, both decode in one batch, and the result is what it is without a cache.
// The same stands in examples/c, examples/attention.rs and bindings/go/examples, and each prints
// the same text.
//
//     c++ -std=c++17 -Iinclude examples/cpp/attention.cpp -Ltarget/release -lradixkv -o attention
//     LD_LIBRARY_PATH=target/release ./attention
#include <radixkv.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t layers = 2, head_dim = 64, query_heads = 2, width = query_heads * head_dim;
constexpr std::uint32_t page_size = 16, page_count = 32, vocabulary = 100, decoded = 6;

// ---- the model: numbers in [-1, 1) instead of weights, the same in every language ----

float number(std::uint32_t row, std::uint32_t column) {
    std::uint32_t x = row * 2654435761U + column * 40503U + 12345U;
    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    return static_cast<float>(x >> 8) / 8388608.0F - 1.0F;
}

void embed(std::vector<float>& x, std::uint32_t id, std::size_t position) {
    const auto row = static_cast<std::uint32_t>(1000 + position);
    for (std::uint32_t i = 0; i < width; ++i) x.push_back(number(id, i) + number(row, i) / 4);
}

/// Queries, keys or values of a layer: here, elements of the state in another order.
std::vector<float> project(const std::vector<float>& x, std::size_t size, std::size_t factor,
                           std::size_t offset) {
    std::vector<float> out;
    for (std::size_t start = 0; start < x.size(); start += width)
        for (std::size_t i = 0; i < size; ++i)
            out.push_back(x[start + (i * factor + offset) % width]);
    return out;
}

std::uint32_t most_likely(const std::vector<float>& x) {
    std::uint32_t best = 0;
    double most = -1e9;
    for (std::uint32_t id = 0; id < vocabulary; ++id) {
        double logit = 0;
        for (std::uint32_t i = 0; i < width; ++i)
            logit += static_cast<double>(x[i]) * static_cast<double>(number(5000 + id, i));
        if (logit > most) {
            most = logit;
            best = id;
        }
    }
    return best;
}

// ---- the engine ----

rkv_runner_config shapes() {
    rkv_runner_config config = rkv::Runner::config();
    config.layer_count = layers;
    config.query_head_count = query_heads;
    config.kv_head_count = 1;
    config.head_dim = head_dim;
    // So that a request's numbers do not depend on what else is in a batch.
    config.flags = RKV_RUNNER_BATCH_INVARIANT;
    return config;
}

rkv_page_table_config pages() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = page_size;
    config.page_count = page_count;
    return config;
}

/// A request: its tokens, how many are computed, and the model's state after the last of those.
struct Request {
    rkv::Sequence sequence;
    rkv_sequence_info begun;
    std::vector<std::uint32_t> ids;
    std::size_t computed = 0;
    std::vector<float> last;
};

/// The books, the memory behind them, and the plan of a step. Destroyed in any order.
class Engine {
public:
    /// A prompt that shares 36 ids with others. What is cached of it need not be computed.
    Request begin(std::uint32_t first_id, std::uint32_t count) {
        Request r;
        for (std::uint32_t i = 0; i < count; ++i) r.ids.push_back(i < 36 ? i : first_id + i - 36);
        r.sequence = cache_.begin(r.ids, {}, 0, &r.begun);
        r.computed = static_cast<std::size_t>(r.begun.cached_position_count);
        return r;
    }

    /// One step of a batch: up to `limit` new positions of each request, through all layers.
    void step(const std::vector<Request*>& batch, std::size_t limit) {
        std::vector<rkv_plan_row> rows;
        std::vector<float> x;
        for (const Request* r : batch) {
            const std::size_t count = std::min(limit, r->ids.size() - r->computed);
            rows.push_back(rkv::plan_row(r->sequence, r->computed, count));
            for (std::size_t at = r->computed; at < r->computed + count; ++at)
                embed(x, r->ids[at], at);
        }
        plan_.set(rows);
        std::vector<float> out(x.size());
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            runner_.append_prefill(plan_, layer, project(x, width, 5, layer),
                                   project(x, head_dim, 3, layer), project(x, head_dim, 7, 1),
                                   out);
            for (std::size_t i = 0; i < x.size(); ++i) x[i] += out[i];
        }
        auto end = x.begin();
        for (std::size_t i = 0; i < batch.size(); ++i) {
            Request& r = *batch[i];
            end += static_cast<std::ptrdiff_t>(rows[i].count * width);
            r.last.assign(end - width, end);
            r.computed += static_cast<std::size_t>(rows[i].count);
            r.sequence.publish(r.computed);
        }
    }

    /// Appends the most likely token to each request, and computes it.
    void decode(const std::vector<Request*>& batch) {
        for (Request* r : batch) {
            r->ids.push_back(most_likely(r->last));
            r->sequence.append(r->ids.back());
        }
        step(batch, 1);
    }

private:
    rkv::PageTable table_{pages()};
    rkv::Cache cache_{table_};
    rkv::Runner runner_{table_, shapes()};  // with memory of its own
    rkv::Plan plan_{table_};
};

void print_decoded(const char* name, const Request& r) {
    std::cout << "   " << name << ':';
    for (std::size_t i = r.ids.size() - decoded; i < r.ids.size(); ++i)
        std::cout << ' ' << r.ids[i];
    std::cout << '\n';
}

void tell() {
    std::cout << "1. A runner of " << layers << " layers: "
              << rkv::Runner::supports(shapes(), page_size) << " bytes of KV for each page of "
              << page_size << " positions\n";
    Engine engine;

    // Nothing is cached: every position is computed, in chunks, and published as it goes.
    Request a = engine.begin(50, 52);
    int steps = 0;
    for (; a.computed < a.ids.size(); ++steps) engine.step({&a}, 32);
    std::cout << "2. Request A: " << a.ids.size() << " tokens, " << a.begun.cached_token_count
              << " of them cached, computed in " << steps << " steps\n";

    // The shared start ends inside a page: two pages are shared, four positions copied.
    Request b = engine.begin(70, 48);
    std::cout << "3. Request B: " << b.ids.size() << " tokens, " << b.begun.cached_token_count
              << " of them cached, " << b.begun.cached_position_count % page_size
              << " of these by a copy\n";
    engine.step({&b}, 32);

    for (std::uint32_t i = 0; i < decoded; ++i) engine.decode({&a, &b});
    std::cout << "4. Both decode " << decoded << " tokens, in one batch\n";
    print_decoded("A", a);
    print_decoded("B", b);

    Engine fresh;
    Request alone = fresh.begin(70, 48);
    fresh.step({&alone}, 64);
    for (std::uint32_t i = 0; i < decoded; ++i) fresh.decode({&alone});
    std::cout << "5. B again, alone, in a cache that is empty\n";
    print_decoded("B", alone);
    std::cout << "   the numbers are "
              << (alone.last == b.last ? "the same, to the bit" : "others") << '\n';
}

}  // namespace

int main() {
    try {
        tell();
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
