// How fast the engine computes a model: engine_speed --model FOLDER
#include "bench/speed.hpp"
#include "engine_options.hpp"
#include "serve/core.hpp"

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace engine;

/// Counts the tokens of a request.
struct Counter final : Listener {
    /// Now, and before the step at hand.
    std::size_t tokens = 0, before = 0;
    bool is_over = false;
    /// Why there will be no more.
    std::string error;
    void on_token(const TokenOutput&) override { ++tokens; }
    void on_finish(RequestResult&& result) override {
        is_over = true;
        error = std::move(result.error);
    }
};

class EngineGenerator final : public Generator {
public:
    EngineGenerator(const EngineConfig& config, std::size_t most_tokens)
        : core_(config), chunk_size_(config.scheduler.chunk_size), most_tokens_(most_tokens) {}

    [[nodiscard]] std::size_t vocab_size() const { return core_.model_config().vocab_size; }

    void read(const std::vector<std::vector<std::uint32_t>>& prompts) override {
        core_.cancel_all();
        counters_.clear();
        for (const std::vector<std::uint32_t>& prompt : prompts) {
            counters_.push_back(std::make_shared<Counter>());
            RequestSpec spec;
            spec.prompt = prompt;
            // Whoever is read first generates while the others are read.
            const std::size_t chunks = chunk_size_ > 0 ? prompt.size() / chunk_size_ + 1 : 1;
            spec.max_tokens = most_tokens_ - prompt.size() + (prompts.size() - 1) * chunks;
            spec.ignore_eos = true;
            core_.add(++last_, core_.accept(std::move(spec)), counters_.back(), Clock::now());
        }
        while (counters_.back()->tokens == 0) {
            advance();
            for (const auto& counter : counters_)
                if (counter->is_over && counters_.back()->tokens == 0) refuse();
        }
    }
    void step() override {
        for (const auto& counter : counters_) counter->before = counter->tokens;
        advance();
        for (const auto& counter : counters_)
            if (counter->tokens == counter->before) refuse();
    }

private:
    Core core_;
    const std::size_t chunk_size_, most_tokens_;
    std::vector<std::shared_ptr<Counter>> counters_;
    std::uint64_t last_ = 0;

    void advance() {
        if (!core_.step()) throw std::logic_error("no request is left to compute");
        for (const auto& counter : counters_)
            if (!counter->error.empty()) throw std::runtime_error(counter->error);
    }
    [[noreturn]] static void refuse() {
        throw std::runtime_error(
            "the sequences don't decode together: --max-running or --kv-mib is too small");
    }
};

int speed(int count, char** arguments) {
    EngineOptions engine;
    SpeedOptions options;
    Options parser;
    engine.add_to(parser);
    options.add_to(parser);
    if (!parser.parse(count, arguments)) {
        std::printf("usage: %s --model FOLDER [option...]\n%s", arguments[0],
                    parser.help().c_str());
        return 0;
    }
    EngineConfig config = engine.config();
    if (engine.speculate > 0) throw UsageError("--speculate: a step is one token here");
    config.prefix_caching = false;
    EngineGenerator generator(config, options.longest());
    print_speed(generator, generator.vocab_size(), options);
    return 0;
}

}  // namespace

int main(int count, char** arguments) { return engine::run_program(speed, count, arguments); }
