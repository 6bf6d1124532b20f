// G15: models with several kinds of layers. What a request generates depends on its prompt alone,
// whichever of the pools is short, and what others have computed is used.
#include "family.hpp"
#include "plain_search.hpp"

#include "http/prometheus.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>

using namespace test;

namespace {

using engine::LayerKind;

constexpr std::size_t window = 24;

/// A model and what it generates without caching, batches or chunks.
class Model {
public:
    Model(const char* name, const engine::CheckpointSpec& spec) : name_(name), checkpoint_(spec) {}

    [[nodiscard]] const char* name() const { return name_; }
    [[nodiscard]] const Checkpoint& checkpoint() const { return checkpoint_; }
    [[nodiscard]] engine::EngineConfig config(bool caching, std::size_t chunk_size) const {
        engine::EngineConfig config = tiny_config(checkpoint_);
        config.prefix_caching = caching;
        config.scheduler.chunk_size = chunk_size;
        return config;
    }
    const Outputs& plain_outputs() {
        if (outputs_.empty()) outputs_ = alone(config(false, 0), family());
        return outputs_;
    }
    /// Of any prompt, in an engine of its own.
    [[nodiscard]] Tokens from_scratch(const Tokens& prompt, std::size_t max_tokens) const {
        TestCore core(config(false, 0));
        return core.complete(greedy(prompt, max_tokens))->tokens;
    }
    std::vector<Found> plain_search(const engine::RequestSpec& spec) {
        if (!oracle_) oracle_ = std::make_unique<Oracle>(checkpoint_);
        return test::plain_search(*oracle_, spec, {});
    }

private:
    const char* name_;
    Checkpoint checkpoint_;
    Outputs outputs_;
    std::unique_ptr<Oracle> oracle_;
};

Model& windows() {
    static Model model("windows", engine::gemma3_checkpoint(
                                      engine::llama_checkpoint(6, 64, 96, 2, 1, 64), window));
    return model;
}

Model& states() {
    static Model model(
        "states", engine::qwen3_next_checkpoint(engine::llama_checkpoint(4, 64, 96, 2, 1, 64)));
    return model;
}

/// One pool that is short, the others are not.
struct Short {
    Model& model;
    LayerKind kind;
    std::uint32_t page_count;

    [[nodiscard]] engine::EngineConfig config(bool caching, std::size_t chunk_size) const {
        engine::EngineConfig config = model.config(caching, chunk_size);
        config.kv.window_page_count = config.kv.state_page_count = 256;
        switch (kind) {
            case LayerKind::full: config.kv.page_count = page_count; break;
            case LayerKind::window: config.kv.window_page_count = page_count; break;
            case LayerKind::delta_net: config.kv.state_page_count = page_count; break;
        }
        return config;
    }
    void say(TestCore& core) const {
        const engine::Metrics& metrics = core.core().metrics();
        std::printf("          %s, %u pages of %s: %zu tokens found, %zu gave way, %zu states "
                    "saved, %zu not\n",
                    model.name(), page_count,
                    kind == LayerKind::full     ? "KV"
                    : kind == LayerKind::window ? "windows"
                                                : "states",
                    static_cast<std::size_t>(metrics.cached_tokens),
                    static_cast<std::size_t>(metrics.preemptions),
                    static_cast<std::size_t>(metrics.saved_states),
                    static_cast<std::size_t>(metrics.unsaved_states));
    }
};

/// The least that a request of the family can do with, and somewhat more.
std::vector<Short> shortages() {
    std::vector<Short> all;
    for (Model* model : {&windows(), &states()})
        for (const std::uint32_t pages : {10U, 14U})
            all.push_back({*model, LayerKind::full, pages});
    for (const std::uint32_t pages : {8U, 11U})
        all.push_back({windows(), LayerKind::window, pages});
    for (const std::uint32_t pages : {1U, 2U, 4U})
        all.push_back({states(), LayerKind::delta_net, pages});
    return all;
}

engine::RequestSpec search(std::uint64_t seed, std::size_t width, std::size_t max_tokens) {
    engine::RequestSpec spec = greedy(random_tokens(seed, 43), max_tokens);
    spec.beam_width = spec.choice_count = width;
    return spec;
}

}  // namespace

/// Every layer counts, and what is far behind it: or equal outputs would show little.
static void g15_outputs_depend_on_what_is_far_behind() {
    for (Model* model : {&windows(), &states()}) {
        const Outputs& outputs = model->plain_outputs();
        for (const Tokens& tokens : outputs) {
            Tokens kinds = tokens;
            std::sort(kinds.begin(), kinds.end());
            kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
            CHECK(kinds.size() > 3);
        }
        CHECK(outputs[0] != outputs[2] && outputs[1] != outputs[4] && outputs[0] == outputs[7]);
        Tokens prompt = family()[1].prompt;
        const Tokens before = model->from_scratch(prompt, 20);
        for (std::size_t i = 0; i < prompt.size() - 3 * window; ++i) prompt[i] ^= 1;
        CHECK(model->from_scratch(prompt, 20) != before);
    }
}

static void g15_greedy_outputs_are_the_same_with_caching_and_any_chunk_size() {
    for (Model* model : {&windows(), &states()}) {
        for (const std::size_t chunk_size : {1U, 7U, 64U, 0U}) {
            for (const bool caching : {false, true}) {
                const engine::EngineConfig config = model->config(caching, chunk_size);
                for (const std::size_t gap : {0U, 1U, 6U}) {
                    TestCore core(config);
                    CHECK(together(core, family(), gap) == model->plain_outputs());
                }
                CHECK(alone(config, family()) == model->plain_outputs());
            }
        }
    }
}

static void g15_greedy_outputs_are_the_same_at_any_page_size() {
    for (Model* model : {&windows(), &states()}) {
        for (const std::uint32_t page_size : {1U, 5U, 64U}) {
            engine::EngineConfig config = model->config(true, 64);
            config.kv.page_size = page_size;
            config.kv.page_count = config.kv.state_page_count = 4096 / page_size;
            TestCore core(config);
            CHECK(together(core, family(), 3) == model->plain_outputs());
            CHECK(core.core().metrics().cached_tokens > 0);
        }
    }
}

/// What another request computed is used as far as it can be.
static void g15_prefixes_are_found() {
    const Tokens system = random_tokens(40, 101), first = joined(system, random_tokens(41, 30));
    const Tokens second = joined(system, random_tokens(42, 40));
    for (Model* model : {&windows(), &states()}) {
        const bool has_states = model == &states();
        for (const std::size_t chunk_size : {0U, 7U, 64U}) {
            TestCore core(model->config(true, chunk_size));
            const auto cached = [&](const Tokens& prompt) {
                const auto heard = core.complete(greedy(prompt, 4));
                CHECK(heard->tokens == model->from_scratch(prompt, 4));
                return heard->result->cached_tokens;
            };
            CHECK_EQ(cached(first), 0U);
            // Its last three tokens are on no whole page.
            CHECK_EQ(cached(first), 128U);
            // Windows that were passed are cached, and read from inside a page too. The first
            // prompt could not know where to save a state for the second one; that did it for the
            // third.
            CHECK_EQ(cached(second), has_states ? 0U : 101U);
            CHECK_EQ(cached(joined(system, random_tokens(43, 9))), has_states ? 96U : 101U);
            CHECK_EQ(cached(second), has_states ? 128U : 140U);
            CHECK_EQ(core.core().metrics().saved_states > 0, has_states);
            core.audit_idle();
        }
    }
}

/// An answer leaves a state at the end of each of its pages, of which the last few stay: the next
/// turn goes on from there.
static void g15_the_next_turn_goes_on_from_the_answer() {
    const Tokens prompt = random_tokens(60, 104);
    for (Model* model : {&windows(), &states()}) {
        TestCore core(model->config(true, 64));
        const std::size_t page_size = core.core().kv().cache().page_size();
        const Tokens answer = core.complete(greedy(prompt, 80))->tokens;
        CHECK(answer == model->from_scratch(prompt, 80));
        const Tokens turn = joined(joined(prompt, answer), random_tokens(5, 105));
        const auto next = core.complete(greedy(turn, 4));
        CHECK(next->tokens == model->from_scratch(turn, 4));
        // The last token of the answer was never computed.
        const std::size_t last = (prompt.size() + answer.size() - 1) / page_size * page_size;
        CHECK(next->result->cached_tokens >= last);
        if (const auto group = core.core().kv().groups().find(LayerKind::delta_net)) {
            CHECK_EQ(next->result->cached_tokens, last);
            CHECK(core.core().kv().table().pool_stats(*group).cached_page_count <= 4);
            CHECK(core.core().kv().cache().stats().dropped_checkpoint_count > 0);
        }
        core.audit_idle();
    }
}

static void g15_greedy_outputs_are_the_same_with_each_pool_short() {
    for (const Short& shortage : shortages()) {
        for (const std::size_t chunk_size : {7U, 64U}) {
            CHECK(alone(shortage.config(true, chunk_size), family()) ==
                  shortage.model.plain_outputs());
            TestCore ample(shortage.model.config(true, chunk_size));
            (void)together(ample, family(), 4);
            TestCore core(shortage.config(true, chunk_size));
            CHECK(together(core, family(), 4) == shortage.model.plain_outputs());
            shortage.say(core);
            // What it had to give up, and what it found all the same.
            const std::uint32_t pool = *core.core().kv().groups().find(shortage.kind);
            CHECK(core.core().kv().table().pool_stats(pool).cached_page_count <
                  ample.core().kv().table().pool_stats(pool).cached_page_count);
            // Two sequences that run need two states: none is left for those to come.
            const bool few = shortage.kind == LayerKind::delta_net && shortage.page_count <= 2;
            CHECK(few || core.core().metrics().cached_tokens > 0);
            CHECK(!few || core.core().metrics().unsaved_states > 0);
        }
    }
}

/// A text of any length has the pages of its window, of the chunk at hand, and two that begin and
/// end with others. Kept or not, what the window has passed is there for others.
static void g15_a_long_text_holds_a_window() {
    const engine::RequestSpec spec = greedy(random_tokens(70, 100), 150);
    const Tokens expected = windows().from_scratch(spec.prompt, 150);
    for (const bool caching : {false, true}) {
        TestCore core(Short{windows(), LayerKind::window, 5}.config(caching, 16));
        const auto heard = core.add(spec);
        std::uint64_t most = 0;
        while (core.step()) {
            const rkv_pool_stats pool = core.core().kv().table().pool_stats(1);
            most = std::max(most, pool.total_page_count - pool.free_page_count -
                                      pool.reclaimable_page_count);
            CHECK_EQ(core.core().metrics().preemptions.load(), 0U);
        }
        CHECK(heard->tokens == expected);
        CHECK(most >= 3 && most <= 5);
        core.audit_idle();
    }
}

/// Twelve long outputs at once in memory for a few: whoever gives way goes on where it was.
static void g15_preemption_loses_nothing() {
    Specs specs;
    for (std::uint64_t i = 0; i < 12; ++i) specs.push_back(greedy(random_tokens(20 + i, 20), 60));
    for (const Short& shortage :
         {Short{windows(), LayerKind::full, 15}, Short{states(), LayerKind::full, 15},
          Short{windows(), LayerKind::window, 9}, Short{states(), LayerKind::delta_net, 3}}) {
        const Outputs expected = alone(shortage.model.config(false, 0), specs);
        for (const bool caching : {false, true}) {
            TestCore core(shortage.config(caching, 16));
            CHECK(together(core, specs, 0) == expected);
            shortage.say(core);
            // Of the other pools a sequence needs no more later on: who begins goes on.
            CHECK_EQ(core.core().metrics().preemptions > 0, shortage.kind == LayerKind::full);
        }
    }
}

static void g15_samples_are_those_of_requests_of_their_own() {
    for (Model* model : {&windows(), &states()}) {
        engine::RequestSpec spec = greedy(random_tokens(50, 45), 30);
        spec.sampling = {1.0, 0.95, 70};
        Outputs expected;
        for (std::size_t i = 0; i < 5; ++i) {
            TestCore core(model->config(false, 0));
            engine::RequestSpec one = spec;
            one.sampling.seed = engine::sample_seed(70, i);
            expected.push_back(core.complete(one)->tokens);
            CHECK(i == 0 || expected[i] != expected[0]);
        }
        spec.choice_count = spec.sample_count = 5;
        for (const bool caching : {true, false}) {
            TestCore core(model->config(caching, 0));
            CHECK(core.complete(spec)->choices() == expected);
            CHECK_EQ(core.core().metrics().forks.load(), 4U);
            CHECK_EQ(core.core().metrics().computed_tokens.load(), 45U + 5U * 29U);
            core.audit_idle();
        }
    }
}

static void g15_beams_are_those_of_a_plain_search() {
    for (Model* model : {&windows(), &states()}) {
        for (const std::size_t width : {2U, 6U}) {
            const engine::RequestSpec spec = search(width, width, 20);
            const std::vector<Found> expected = model->plain_search(spec);
            for (const std::uint32_t page_size : {1U, 4U, 16U}) {
                engine::EngineConfig config = model->config(true, 0);
                config.kv.page_size = page_size;
                config.kv.page_count = config.kv.state_page_count = 2048 / page_size;
                TestCore core(config);
                check_found(*core.complete(spec), expected);
                CHECK_EQ(core.core().metrics().computed_tokens.load(), 43U + 19U * width);
                core.audit_idle();
            }
        }
    }
}

/// They take turns where one pool has no room for all.
static void g15_beams_with_each_pool_short() {
    for (const Short& shortage :
         {Short{windows(), LayerKind::full, 5}, Short{states(), LayerKind::full, 5},
          Short{windows(), LayerKind::window, 7}, Short{states(), LayerKind::delta_net, 1},
          Short{states(), LayerKind::delta_net, 3}}) {
        const engine::RequestSpec spec = search(6, 6, 20);
        for (const bool caching : {true, false}) {
            TestCore core(shortage.config(caching, 16));
            const auto heard = core.add(spec);
            while (core.step()) audit(core.core().kv().table(), core.core().kv().cache());
            check_found(*heard, shortage.model.plain_search(spec));
            CHECK(heard->result->preemptions > 0);
            core.audit_idle();
        }
    }
}

/// Only what follows the parent's text is computed, and its last token, which never was; the state
/// and the window are the parent's.
static void g15_a_continuation_is_what_the_whole_text_would_be() {
    const Tokens suffix = random_tokens(61, 5);
    for (Model* model : {&windows(), &states()}) {
        for (const bool caching : {true, false}) {
            for (const std::uint32_t page_size : {1U, 16U, 128U}) {
                engine::EngineConfig config = model->config(caching, 0);
                config.kv.page_size = page_size;
                config.kv.page_count = config.kv.state_page_count = 4096 / page_size;
                TestCore core(config);
                engine::RequestSpec parent = greedy(random_tokens(60, 70), 30);
                parent.retain = true;
                parent.id = "a";
                const Tokens text = joined(parent.prompt, core.complete(parent)->tokens);
                const std::uint64_t before = core.core().metrics().computed_tokens;
                engine::RequestSpec child = greedy({}, 10);
                child.continuation = engine::Continuation{"a", suffix};
                const auto second = core.complete(child);
                CHECK(second->tokens == model->from_scratch(joined(text, suffix), 10));
                CHECK_EQ(second->result->inherited_tokens, 99U);
                CHECK_EQ(core.core().metrics().computed_tokens - before, 6U + 9U);
                child.continuation = engine::Continuation{"a", {}};
                const auto more = core.complete(child);
                CHECK(more->tokens == model->from_scratch(text, 10));
                CHECK_EQ(more->result->inherited_tokens, 99U);
                CHECK(core.core().drop("a"));
                core.audit_idle();
            }
        }
    }
}

/// B06: a step that fails takes its requests with it and nothing else; what comes after is right.
static void g15_steps_that_fail_lose_nothing() {
    for (Model* model : {&windows(), &states()}) {
        for (const std::size_t steps : {0U, 1U, 4U, 9U}) {
            engine::EngineConfig config = model->config(true, 32);
            std::size_t left = steps;
            config.before_forward = [&](std::size_t) {
                if (left-- == 0) throw std::runtime_error("the device fell off the bus");
            };
            TestCore core(config);
            std::vector<std::shared_ptr<Heard>> heard;
            for (const engine::RequestSpec& spec : family()) heard.push_back(core.add(spec));
            core.run();
            std::size_t failed = 0;
            for (std::size_t i = 0; i < heard.size(); ++i) {
                if (heard[i]->result->finish == engine::Finish::error)
                    ++failed;
                else
                    CHECK(heard[i]->tokens == model->plain_outputs()[i]);
            }
            CHECK(failed > 0);
            core.audit_idle();
            CHECK(together(core, family(), 1) == model->plain_outputs());
        }
    }
}

static void g15_what_such_models_cannot_do_is_said() {
    for (Model* model : {&windows(), &states()}) {
        engine::EngineConfig config = model->config(true, 0);
        config.device = engine::Device::cuda;
        CHECK_REFUSES(std::runtime_error, "is computed on the processor only",
                      TestCore core(config));
    }
    engine::EngineConfig config = windows().config(true, 64);
    config.kv.window_page_count = 5;
    TestCore core(config);
    CHECK_REFUSES(engine::InvalidRequest, "need 8 pages of the windows' KV memory; there are 5",
                  (void)core.core().accept(greedy(random_tokens(1, 120), 20)));
    CHECK_EQ(core.core().longest_text(), 81U);
    CHECK(core.complete(greedy(random_tokens(1, 61), 20))->tokens ==
          windows().from_scratch(random_tokens(1, 61), 20));
}

/// A page of K and V of one layer is 8 KiB here, a state 9728 bytes a layer.
static void g15_memory_is_divided_among_the_pools() {
    const auto pages = [](Model& model) {
        engine::EngineConfig config = model.config(true, 0);
        config.kv.page_count = 0;
        config.kv.bytes = 8U << 20;
        TestCore core(config);
        return std::vector<std::uint64_t>{core.core().kv().table().pool_stats(0).total_page_count,
                                          core.core().kv().table().pool_stats(1).total_page_count};
    };
    CHECK(pages(windows()) == (std::vector<std::uint64_t>{170, 170}));
    CHECK(pages(states()) == (std::vector<std::uint64_t>{768, 71}));
}

static void g15_metrics_speak_of_each_pool() {
    for (Model* model : {&windows(), &states()}) {
        TestCore core(model->config(true, 64));
        CHECK(together(core, family(), 4) == model->plain_outputs());
        const std::string text = engine::prometheus_text(core.core());
        const auto says = [&](const std::string& name, std::uint64_t value) {
            CHECK(text.find(name + " " + std::to_string(value) + "\n") != std::string::npos);
        };
        const rkv_pool_stats pool = core.core().kv().table().pool_stats(1);
        CHECK(pool.cached_page_count > 0);
        const std::string name = std::string("engine_group_pages{group=\"") +
                                 (model == &states() ? "state" : "window") + "\",state=\"";
        says(name + "cached\"}", pool.cached_page_count);
        says(name + "free\"}", pool.free_page_count);
        says("engine_saved_states_total", core.core().metrics().saved_states);
    }
}

/// What is retained keeps its window. A chunk that would never fit beside it gets its turn.
static void g15_retained_windows_give_way_to_a_chunk() {
    const engine::RequestSpec large = greedy(random_tokens(71, 200), 20);
    const Tokens expected = windows().from_scratch(large.prompt, 20);
    for (const std::uint32_t pages : {7U, 64U}) {
        TestCore core(Short{windows(), LayerKind::window, pages}.config(true, 50));
        engine::RequestSpec parent = greedy(random_tokens(60, 70), 30);
        parent.retain = true;
        parent.id = "a";
        CHECK_EQ(core.complete(parent)->result->choices[0].retained_id, "a");
        const auto heard = core.complete(large);
        CHECK(heard->result.has_value());  // a step without rows is taken for the end
        CHECK(heard->tokens == expected);
        // Where there is room for both nothing is dropped.
        CHECK_EQ(core.core().drop("a"), pages > 7);
        core.audit_idle();
    }
}

int main() {
    RUN(g15_outputs_depend_on_what_is_far_behind);
    RUN(g15_greedy_outputs_are_the_same_with_caching_and_any_chunk_size);
    RUN(g15_greedy_outputs_are_the_same_at_any_page_size);
    RUN(g15_prefixes_are_found);
    RUN(g15_the_next_turn_goes_on_from_the_answer);
    RUN(g15_greedy_outputs_are_the_same_with_each_pool_short);
    RUN(g15_a_long_text_holds_a_window);
    RUN(g15_preemption_loses_nothing);
    RUN(g15_samples_are_those_of_requests_of_their_own);
    RUN(g15_beams_are_those_of_a_plain_search);
    RUN(g15_beams_with_each_pool_short);
    RUN(g15_a_continuation_is_what_the_whole_text_would_be);
    RUN(g15_retained_windows_give_way_to_a_chunk);
    RUN(g15_steps_that_fail_lose_nothing);
    RUN(g15_what_such_models_cannot_do_is_said);
    RUN(g15_memory_is_divided_among_the_pools);
    RUN(g15_metrics_speak_of_each_pool);
    return 0;
}
