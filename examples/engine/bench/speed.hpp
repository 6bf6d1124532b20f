// How fast a model is computed, on its own: no server, no arrivals. The same measurement for this
// engine and for others beside it.
#ifndef ENGINE_BENCH_SPEED_HPP
#define ENGINE_BENCH_SPEED_HPP

#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

/// Something that computes a model.
class Generator {
public:
    virtual ~Generator() = default;
    /// Forgets what was, and reads new prompts, until the first token after each is known.
    virtual void read(const std::vector<std::vector<std::uint32_t>>& prompts) = 0;
    /// Reads those tokens, until the next ones are known.
    virtual void step() = 0;
};

struct SpeedOptions {
    std::uint64_t prompt = 1024, context = 512, batch = 8, steps = 32, rounds = 3;

    void add_to(Options& options);
    /// Positions that a generator needs for each sequence.
    [[nodiscard]] std::size_t longest() const;
};

/// Measures, and prints a line: tokens per second of a prompt, of decoding alone, and of decoding
/// in a batch, of all sequences together. The best of some rounds each: what else the machine does
/// can only take time away.
void print_speed(Generator& generator, std::size_t vocab_size, const SpeedOptions& options);

}  // namespace engine

#endif  // ENGINE_BENCH_SPEED_HPP
