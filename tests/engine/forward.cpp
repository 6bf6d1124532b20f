// B11: what the engine computes is what the model's formulas say, through pages, chunks, threads.
#include "fixture.hpp"
#include "reference.hpp"

#include <algorithm>
#include <cmath>

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
    compare(tiny_spec(), engine::Gemm::blas, 8);
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

int main() {
    RUN(b11_packed_products_are_the_same_in_any_batch);
    RUN(b11_llama_with_grouped_queries);
    RUN(b11_llama_with_as_many_kv_heads_as_query_heads);
    RUN(b11_qwen3_with_head_norms);
    RUN(b11_qwen2_with_biases);
    RUN(b11_llama3_rope_scaling);
    RUN(b11_half_precision_weights);
    RUN(b11_with_blas);
    return 0;
}
