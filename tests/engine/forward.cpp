// B11: what the engine computes is what the model's formulas say, through pages, chunks, threads.
#include "fixture.hpp"
#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace test;

namespace {

// Logits here have a spread of about 3, and a float has 24 bits; 1.3e-5 was seen.
constexpr double tolerance = 5e-4;

double farthest(const std::vector<float>& a, const Vector& b) {
    CHECK_EQ(a.size(), b.size());
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
    return most;
}

/// Computes a prompt in chunks, then some tokens one by one, and compares the logits at the ends.
void compare(const engine::CheckpointSpec& spec, engine::Gemm gemm, std::size_t chunk_size) {
    const Checkpoint checkpoint(spec);
    engine::EngineConfig config = tiny_config(checkpoint);
    config.gemm = gemm;
    config.scheduler.chunk_size = chunk_size;
    config.thread_count = 2;
    TestCore core(config);
    const std::vector<std::uint32_t> prompt = random_tokens(7, 37);
    const auto heard = core.complete(greedy(prompt, 6));
    const std::vector<Vector> expected =
        Reference(checkpoint.path()).logits(joined(prompt, heard->tokens));
    const double distance = farthest(heard->first_logits, expected[prompt.size() - 1]);
    std::printf("          logits differ by %.1e at most\n", distance);
    CHECK(distance < tolerance);
    for (std::size_t i = 0; i < heard->tokens.size(); ++i) {
        const Vector& logits = expected[prompt.size() - 1 + i];
        const double most = *std::max_element(logits.begin(), logits.end());
        CHECK(logits[heard->tokens[i]] > most - tolerance);
    }
}

/// From -1 on; with a scale that is a power of two they fit into the upper halves of floats.
std::vector<float> numbers(std::uint64_t seed, std::size_t count, float scale) {
    std::vector<float> made;
    for (const std::uint32_t token : random_tokens(seed, count))
        made.push_back(static_cast<float>(token) / scale - 1);
    return made;
}

/// The layout of packed weights.
template <class Weight>
std::vector<Weight> packed(const std::vector<float>& weight, std::size_t outputs,
                           std::size_t inputs) {
    const std::size_t columns = (outputs + engine::packed_width - 1) / engine::packed_width;
    std::vector<Weight> made(columns * inputs * engine::packed_width);
    for (std::size_t n = 0; n < outputs; ++n) {
        for (std::size_t k = 0; k < inputs; ++k) {
            Weight& to = made[(n / engine::packed_width * inputs + k) * engine::packed_width +
                              n % engine::packed_width];
            const float number = weight[n * inputs + k];
            // Of a number that fits, the upper half is the number.
            const auto* bytes = reinterpret_cast<const unsigned char*>(&number);
            std::memcpy(&to, bytes + sizeof number - sizeof to, sizeof to);
        }
    }
    return made;
}

template <class Weight>
void compare_kernels(engine::PackedGemm<Weight> engine::PackedGemms::* kernel) {
    constexpr std::size_t inputs = 40, most_rows = 130;
    for (const std::size_t outputs : {1U, 16U, 31U, 48U, 77U, 128U}) {
        const std::size_t columns = (outputs + engine::packed_width - 1) / engine::packed_width;
        const std::size_t last_width = outputs - (columns - 1) * engine::packed_width;
        const std::vector<float> weight = numbers(outputs, outputs * inputs, 128);
        const std::vector<Weight> packed_weight = packed<Weight>(weight, outputs, inputs);
        const std::vector<float> x = numbers(1, most_rows * inputs, 100);
        std::vector<float> room(engine::packed_room * inputs * engine::packed_width);
        for (const engine::PackedGemms& kernels : engine::usable_packed_gemms()) {
            std::vector<float> all;
            for (std::size_t rows = most_rows; rows > 0; rows -= rows > 26 ? 13 : 1) {
                // A guard behind each row.
                std::vector<float> y(rows * (outputs + 1), -7.0F);
                (kernels.*kernel)(x.data(), rows, inputs, packed_weight.data(), columns,
                                  last_width, y.data(), outputs + 1, room.data());
                if (all.empty()) all = y;
                CHECK(std::equal(y.begin(), y.end(), all.begin()));
                for (std::size_t row = 0; row < rows; ++row)
                    CHECK_EQ(y[row * (outputs + 1) + outputs], -7.0F);
            }
            for (std::size_t i = 0; i < most_rows * outputs; ++i) {
                const std::size_t row = i / outputs, n = i % outputs;
                double sum = 0;
                for (std::size_t k = 0; k < inputs; ++k)
                    sum += double{weight[n * inputs + k]} * double{x[row * inputs + k]};
                CHECK(std::abs(sum - double{all[row * (outputs + 1) + n]}) < 1e-4);
            }
        }
    }
}

}  // namespace

static void b11_llama_with_grouped_queries() {
    compare(tiny_spec(), engine::Gemm::packed, 0);
    compare(tiny_spec(), engine::Gemm::packed, 5);
}

static void b11_llama_with_as_many_kv_heads_as_query_heads() {
    compare(engine::llama_checkpoint(1, 64, 96, 2, 2, 64), engine::Gemm::packed, 0);
}

/// Qwen3: norms of each head, tied embeddings, a head that is wider than hidden / heads.
static void b11_qwen3_with_head_norms() {
    engine::CheckpointSpec spec = engine::llama_checkpoint(2, 64, 128, 2, 1, 128);
    spec.model.model_type = "qwen3";
    spec.model.tie_word_embeddings = true;
    spec.model.rope_theta = 1e6;
    spec.qk_norm = true;
    compare(spec, engine::Gemm::packed, 0);
}

static void b11_qwen2_with_biases() {
    engine::CheckpointSpec spec = tiny_spec();
    spec.model.model_type = "qwen2";
    spec.attention_bias = true;
    compare(spec, engine::Gemm::packed, 11);
}

/// Llama 3.1: the original context is so short here that all three cases of the scaling occur.
static void b11_llama3_rope_scaling() {
    engine::CheckpointSpec spec = tiny_spec();
    spec.model.rope_theta = 500;
    spec.model.rope_scaling = engine::Llama3Rope{8, 1, 4, 64};
    compare(spec, engine::Gemm::packed, 0);
}

/// Windows shorter than the prompt, and the last layer behind them.
static void g15_gemma3_with_windows() {
    for (const std::size_t window : {1U, 10U, 24U})
        compare(engine::gemma3_checkpoint(engine::llama_checkpoint(7, 64, 96, 2, 1, 64), window),
                engine::Gemm::packed, window == 10 ? 5 : 0);
    engine::CheckpointSpec spec = engine::gemma3_checkpoint(tiny_spec(), 16);
    spec.model.tie_word_embeddings = true;
    compare(spec, engine::Gemm::packed, 3);
}

/// Value heads that share keys, as many of both, and convolutions over nothing but the token.
static void g15_qwen3_next_with_delta_nets() {
    const engine::CheckpointSpec spec =
        engine::qwen3_next_checkpoint(engine::llama_checkpoint(5, 64, 96, 4, 2, 64));
    compare(spec, engine::Gemm::packed, 0);
    compare(spec, engine::Gemm::packed, 5);
    for (const engine::DeltaNetConfig& delta :
         {engine::DeltaNetConfig{3, 3, 24, 40, 3}, engine::DeltaNetConfig{1, 4, 8, 16, 1}}) {
        engine::CheckpointSpec other = spec;
        other.model.delta_net = delta;
        compare(other, engine::Gemm::packed, 7);
    }
}

/// Attention over latent vectors against the formulas, which make each head's keys and values. Also
/// with the numbers of the real model: keys of 576, values of 512, where a head has 192 and 128.
static void b11_deepseek_v2_with_latent_attention() {
    const engine::CheckpointSpec shape = engine::llama_checkpoint(2, 64, 96, 4, 4, 64);
    compare(engine::deepseek_v2_checkpoint(shape), engine::Gemm::packed, 0);
    compare(engine::deepseek_v2_checkpoint(shape), engine::Gemm::packed, 5);
    compare(engine::deepseek_v2_checkpoint(shape, {512, 128, 64, 128}), engine::Gemm::packed, 7);
}

static void b11_half_precision_weights() {
    for (const engine::Dtype dtype : {engine::Dtype::f16, engine::Dtype::f32}) {
        engine::CheckpointSpec spec = tiny_spec();
        spec.dtype = dtype;
        compare(spec, engine::Gemm::packed, 0);
    }
}

static void b11_with_blas() {
    if (!engine::has_blas()) {
        std::fprintf(stderr, "SKIP the products of BLAS: this build has none\n");
        return;
    }
    // A step of many rows, and steps of few, which are computed otherwise.
    compare(tiny_spec(), engine::Gemm::blas, 0);
    compare(tiny_spec(), engine::Gemm::blas, 8);
    for (const std::size_t outputs : {1U, 15U, 258U, 600U}) {
        for (const float scale : {128.0F, 100.0F}) {
            constexpr std::size_t inputs = 96;
            const std::vector<float> weight = numbers(outputs, outputs * inputs, scale);
            const engine::Linear packed(weight, outputs, inputs, {}, engine::Gemm::packed);
            const engine::Linear blas(weight, outputs, inputs, {}, engine::Gemm::blas);
            engine::ThreadPool pool(2);
            for (const std::size_t rows : {1U, 31U, 32U, 67U}) {
                const std::vector<float> x = numbers(rows, rows * inputs, 100);
                std::vector<float> a(rows * outputs), b(rows * outputs);
                packed.apply(x.data(), rows, a.data(), pool);
                blas.apply(x.data(), rows, b.data(), pool);
                for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 1e-3F);
            }
        }
    }
}

/// A row's bits don't depend on how many rows stand beside it, nor on the number of threads.
static void b11_packed_products_are_the_same_in_any_batch() {
    constexpr std::size_t inputs = 96, rows = 67;
    // Weights that fit into the upper halves of floats, and others.
    for (const auto& [outputs, scale] : {std::pair(1U, 128.0F), {1U, 100.0F}, {15U, 128.0F},
                                         {16U, 100.0F}, {258U, 128.0F}, {258U, 100.0F}}) {
        std::vector<float> weight, x;
        for (const std::uint32_t t : random_tokens(outputs, outputs * inputs))
            weight.push_back(static_cast<float>(t) / scale - 1);
        for (const std::uint32_t t : random_tokens(3, rows * inputs))
            x.push_back(static_cast<float>(t) / 100 - 1.3F);
        const engine::Linear linear(weight, outputs, inputs, {}, engine::Gemm::packed);
        engine::ThreadPool one(1), three(3);
        std::vector<float> all(rows * outputs), some(rows * outputs);
        linear.apply(x.data(), rows, all.data(), one);
        for (std::size_t first = 0; first < rows; first += 9) {
            for (std::size_t count = 1; first + count <= rows; count += 5) {
                linear.apply(x.data() + first * inputs, count, some.data(), three);
                CHECK(std::equal(some.begin(),
                                 some.begin() + static_cast<std::ptrdiff_t>(count * outputs),
                                 all.begin() + static_cast<std::ptrdiff_t>(first * outputs)));
            }
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
            const float* const w = weight.data() + i % outputs * inputs;
            double sum = 0;
            for (std::size_t k = 0; k < inputs; ++k)
                sum += double{w[k]} * double{x[i / outputs * inputs + k]};
            CHECK(std::abs(sum - double{all[i]}) < 1e-3);
        }
    }
}

/// Those that a faster one stands in for on this processor are computed too.
static void b11_packed_products_of_every_kernel() {
    CHECK(!engine::usable_packed_gemms().empty());
    compare_kernels<float>(&engine::PackedGemms::floats);
    compare_kernels<engine::Bfloat>(&engine::PackedGemms::bfloats);
}

int main() {
    RUN(b11_packed_products_of_every_kernel);
    RUN(b11_packed_products_are_the_same_in_any_batch);
    RUN(b11_llama_with_grouped_queries);
    RUN(b11_llama_with_as_many_kv_heads_as_query_heads);
    RUN(b11_qwen3_with_head_norms);
    RUN(b11_qwen2_with_biases);
    RUN(b11_llama3_rope_scaling);
    RUN(b11_deepseek_v2_with_latent_attention);
    RUN(b11_half_precision_weights);
    RUN(g15_gemma3_with_windows);
    RUN(g15_qwen3_next_with_delta_nets);
    RUN(b11_with_blas);
    return 0;
}
