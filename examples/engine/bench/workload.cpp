#include "bench/workload.hpp"

#include "bench/table.hpp"
#include "serve/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <stdexcept>

namespace engine {

namespace {

constexpr std::array<const char*, 40> words = {
    "answer", "always",  "before", "between", "careful", "clear",  "detail", "each",
    "every",  "example", "first",  "follow",  "give",    "help",   "if",     "important",
    "in",     "is",      "known",  "list",    "name",    "never",  "not",    "of",
    "order",  "please",  "point",  "question", "reason", "result", "say",    "short",
    "source", "state",   "step",   "the",     "then",    "user",   "write",  "you"};

/// Tokens to generate.
struct Lengths {
    std::size_t least, most;
};

/// One kind of workload. `make` fills in prompt and output, `arrive` the time of request `i`.
struct Kind {
    const char* name;
    const char* prompts;
    Lengths output;
    const char* arrivals;
    std::size_t request_count;
    std::function<BenchRequest(Random&, std::size_t index, Lengths)> make;
    std::function<double(Random&, std::size_t index, double before)> arrive;
};

BenchRequest request(Random& random, std::size_t prompt, std::size_t output) {
    BenchRequest made;
    made.prompt = words_of(random, prompt);
    made.output = output;
    return made;
}

/// Each behind a beginning that depends on nothing but this.
BenchRequest with_system_prompt(Random& random, std::size_t own, std::size_t output) {
    Random shared(1024);
    BenchRequest made = request(shared, 1024, output);
    made.shared = made.prompt.size();
    const std::vector<std::uint32_t> suffix = words_of(random, own);
    made.prompt.insert(made.prompt.end(), suffix.begin(), suffix.end());
    return made;
}

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> all = {
        {"prefix_caching", "1024 tokens shared by all and 32-128 of its own each", {256, 256},
         "8 a second", 48,
         [](Random& random, std::size_t, Lengths output) {
             return with_system_prompt(random, random.range(32, 128), output.most);
         },
         [](Random&, std::size_t i, double) { return static_cast<double>(i) / 8; }},
        {"continuous_batching", "prompts of 64-512 tokens", {64, 256}, "4 a second", 32,
         [](Random& random, std::size_t, Lengths output) {
             const std::size_t prompt = random.range(64, 512);
             return request(random, prompt, random.range(output.least, output.most));
         },
         [](Random&, std::size_t i, double) { return static_cast<double>(i) / 4; }},
        {"paged_attention", "half the prompts 32-128 tokens, half 512-1024", {128, 512},
         "8 every half second", 48,
         [](Random& random, std::size_t i, Lengths output) {
             const std::size_t prompt =
                 i % 2 == 0 ? random.range(32, 128) : random.range(512, 1024);
             return request(random, prompt, random.range(output.least, output.most));
         },
         [](Random&, std::size_t i, double) { return static_cast<double>(i / 8) / 2; }},
        {"chunked_prefill", "three of four prompts 1024-2048 tokens, one 64-128", {64, 256},
         "Poisson 6 a second", 48,
         [](Random& random, std::size_t i, Lengths output) {
             const std::size_t prompt =
                 i % 4 == 3 ? random.range(64, 128) : random.range(1024, 2048);
             return request(random, prompt, random.range(output.least, output.most));
         },
         [](Random& random, std::size_t, double before) {
             return before - std::log(random.unit()) / 6;
         }},
    };
    return all;
}

std::string describe(const Kind& kind, const WorkloadOptions& options) {
    const std::size_t limit = options.max_output > 0 ? options.max_output : kind.output.most;
    const std::size_t least = std::min(kind.output.least, limit);
    const std::size_t most = std::min(kind.output.most, limit);
    std::string text = std::string(kind.prompts) + ", " + std::to_string(least);
    if (most > least) text += "-" + std::to_string(most);
    return text + " to generate, " + kind.arrivals + pace(options);
}

}  // namespace

std::vector<std::uint32_t> words_of(Random& random, std::size_t count) {
    std::string out;
    while (out.size() < count) {
        out += words[random.range(0, words.size() - 1)];
        out += random.range(0, 9) == 0 ? ". " : " ";
    }
    out.resize(count);
    return encode(out);
}

std::size_t Workload::prompt_tokens() const {
    std::size_t sum = 0;
    for (const BenchRequest& request : requests) sum += request.prompt.size();
    return sum;
}

std::size_t Workload::longest() const {
    std::size_t most = 0;
    for (const BenchRequest& request : requests)
        most = std::max(most, request.prompt.size() + request.output);
    return most;
}

const std::vector<std::string>& workload_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> list;
        for (const Kind& kind : kinds()) list.emplace_back(kind.name);
        return list;
    }();
    return names;
}

std::string pace(const WorkloadOptions& options) {
    return options.speed == 1 ? "" : ", " + format("%g", options.speed) + " times as fast";
}

Workload make_workload(const WorkloadOptions& options) {
    const auto& all = kinds();
    const auto kind = std::find_if(all.begin(), all.end(), [&](const Kind& candidate) {
        return candidate.name == options.name;
    });
    if (kind == all.end()) throw std::runtime_error("there is no workload " + options.name);
    Random random(options.seed);
    Workload workload{kind->name, describe(*kind, options), {}};
    double time = 0;
    const std::size_t count =
        options.request_count > 0 ? options.request_count : kind->request_count;
    for (std::size_t i = 0; i < count; ++i) {
        BenchRequest made = kind->make(random, i, kind->output);
        time = kind->arrive(random, i, time);
        made.arrival = time / options.speed;
        if (options.max_output > 0) made.output = std::min(made.output, options.max_output);
        workload.requests.push_back(std::move(made));
    }
    return workload;
}

}  // namespace engine
