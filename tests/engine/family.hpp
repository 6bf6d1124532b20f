// Requests that have much in common, and what comes of them one by one and together.
#ifndef RADIXKV_TESTS_ENGINE_FAMILY_HPP
#define RADIXKV_TESTS_ENGINE_FAMILY_HPP

#include "fixture.hpp"

#include <cstddef>
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

}  // namespace test

#endif  // RADIXKV_TESTS_ENGINE_FAMILY_HPP
