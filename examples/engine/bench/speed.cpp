#include "bench/speed.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace engine {

namespace {

template <class F> double seconds(F f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Tokens that follow from the place alone: every generator gets the same.
std::vector<std::vector<std::uint32_t>> prompts(std::size_t count, std::size_t length,
                                                std::size_t vocab_size) {
    std::vector<std::vector<std::uint32_t>> all(count);
    std::uint64_t state = 1;
    for (std::vector<std::uint32_t>& prompt : all)
        for (std::size_t i = 0; i < length; ++i) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            prompt.push_back(static_cast<std::uint32_t>((state >> 33) % vocab_size));
        }
    return all;
}

}  // namespace

void SpeedOptions::add_to(Options& options) {
    options.number("--prompt", "tokens of the prompt that is timed", prompt, 1, 1U << 20)
        .number("--context", "tokens before decoding", context, 1, 1U << 20)
        .number("--batch", "sequences that decode together", batch, 1, 1024)
        .number("--steps", "of decoding, that are timed", steps, 1, 1U << 20)
        .number("--rounds", "the best of which counts", rounds, 1, 1000);
}

std::size_t SpeedOptions::longest() const { return std::max(prompt, context + 2 * steps) + 1; }

void print_speed(Generator& generator, std::size_t vocab_size, const SpeedOptions& options) {
    double prefill = 0, alone = 0, together = 0;
    const auto decode = [&](std::size_t batch, double& best) {
        generator.read(prompts(batch, options.context, vocab_size));
        const double time = seconds([&] {
            for (std::uint64_t i = 0; i < options.steps; ++i) generator.step();
        });
        best = std::max(best, static_cast<double>(batch * options.steps) / time);
    };
    // Reads the weights from the disk, and makes room: untimed.
    generator.read(prompts(1, options.prompt, vocab_size));
    for (std::uint64_t round = 0; round < options.rounds; ++round) {
        const auto prompt = prompts(1, options.prompt, vocab_size);
        const double time = seconds([&] { generator.read(prompt); });
        prefill = std::max(prefill, static_cast<double>(options.prompt) / time);
        decode(1, alone);
        decode(options.batch, together);
    }
    std::printf("%.1f\t%.1f\t%.1f\n", prefill, alone, together);
}

}  // namespace engine
