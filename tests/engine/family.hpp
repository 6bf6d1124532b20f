// Requests that have much in common, and what comes of them one by one and together.
#ifndef RADIXKV_TESTS_ENGINE_FAMILY_HPP
#define RADIXKV_TESTS_ENGINE_FAMILY_HPP

#include "fixture.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace test {

using Specs = std::vector<engine::RequestSpec>;
using Outputs = std::vector<std::vector<std::uint32_t>>;

/// A system prompt with other endings, one that ends inside it, one inside a page of an ending, the
/// same prompt again, and one that has nothing in common.
inline Specs family() {
    const std::vector<std::uint32_t> system = random_tokens(1, 90);
    const std::vector<std::uint32_t> question = random_tokens(4, 21);
    Specs specs;
    specs.push_back(greedy(joined(system, random_tokens(2, 13)), 20));
    specs.push_back(greedy(joined(system, random_tokens(3, 40)), 9));
    specs.push_back(greedy(joined(system, question), 30));
    specs.push_back(greedy({system.begin(), system.begin() + 50}, 12));
    specs.push_back(greedy(joined(joined(system, question), random_tokens(5, 3)), 8));
    specs.push_back(specs[2]);
    specs.push_back(greedy(random_tokens(6, 64), 16));
    specs.push_back(specs[0]);
    return specs;
}

/// One after another.
inline Outputs alone(const engine::EngineConfig& config, const Specs& specs) {
    TestCore core(config);
    Outputs outputs;
    for (const engine::RequestSpec& spec : specs) outputs.push_back(core.complete(spec)->tokens);
    core.audit_idle();
    return outputs;
}

/// Each request joins `gap` steps after the one before.
inline Outputs together(TestCore& core, const Specs& specs, std::size_t gap) {
    std::vector<std::shared_ptr<Heard>> all;
    for (const engine::RequestSpec& spec : specs) {
        all.push_back(core.add(spec));
        for (std::size_t i = 0; i < gap; ++i) core.step();
    }
    core.run();
    Outputs outputs;
    for (const auto& heard : all) {
        CHECK(heard->result->finish == engine::Finish::length);
        outputs.push_back(heard->tokens);
    }
    core.audit_idle();
    return outputs;
}

/// How the engine of a model is set up.
using ConfigWith = engine::EngineConfig (*)(bool caching, std::size_t chunk_size);

/// B11: the family generates words that differ, and the same for the same prompt.
inline void check_no_constants(const Outputs& outputs) {
    for (std::vector<std::uint32_t> kinds : outputs) {
        std::sort(kinds.begin(), kinds.end());
        kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
        CHECK(kinds.size() > 3);
    }
    CHECK(outputs[0] != outputs[2] && outputs[1] != outputs[4] && outputs[0] == outputs[7]);
}

/// B11: and that whatever is cached, in chunks of any size, and in whatever company.
inline void check_caching_and_chunks(ConfigWith config_with, const Outputs& plain) {
    for (const std::size_t chunk_size : {1U, 7U, 64U, 0U}) {
        for (const bool caching : {false, true}) {
            CHECK(alone(config_with(caching, chunk_size), family()) == plain);
            for (const std::size_t gap : {0U, 1U, 6U}) {
                TestCore core(config_with(caching, chunk_size));
                CHECK(together(core, family(), gap) == plain);
                // With no limit to a step, all of those that come at once begin at once.
                const bool found = caching && (gap > 0 || chunk_size > 0);
                CHECK_EQ(core.cache().hit_position_count > 0, found);
            }
        }
    }
}

/// B11: in pages of any size.
inline void check_page_sizes(ConfigWith config_with, const Outputs& plain) {
    for (const std::uint32_t page_size : {1U, 5U, 64U, 256U}) {
        engine::EngineConfig config = config_with(true, 64);
        config.kv.page_size = page_size;
        config.kv.page_count = 4096 / page_size;
        TestCore core(config);
        CHECK(together(core, family(), 3) == plain);
    }
}

}  // namespace test

#endif  // RADIXKV_TESTS_ENGINE_FAMILY_HPP
