// B11, G15: checkpoints that transformers made, and the greedy tokens that it generated with each:
//
//     test_transformers FOLDER       as transformers_greedy.py makes it
#include "fixture.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <set>

using namespace test;
using Json = nlohmann::json;
using Ids = std::vector<std::uint32_t>;

namespace {

std::filesystem::path all;

struct Example {
    Ids prompt, tokens;
};

Json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    CHECK(file.good());
    return Json::parse(file);
}

std::vector<std::filesystem::path> checkpoints() {
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(all))
        folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end());
    CHECK_EQ(folders.size(), 13U);
    return folders;
}

std::vector<Example> examples(const std::filesystem::path& folder) {
    std::vector<Example> read;
    for (const Json& entry : read_json(folder / "greedy.json"))
        read.push_back({entry["prompt"].get<Ids>(), entry["tokens"].get<Ids>()});
    CHECK(read.size() >= 32);
    return read;
}

struct Way {
    bool caching;
    /// All requests at once, or one after another.
    bool together;
    std::size_t chunk_size;
    std::uint32_t page_size;
};

engine::EngineConfig config_of(const std::filesystem::path& folder, const Way& way) {
    engine::EngineConfig config;
    config.model = folder;
    config.prefix_caching = way.caching;
    config.kv.page_size = way.page_size;
    config.kv.page_count = 16384 / way.page_size;
    config.scheduler.chunk_size = way.chunk_size;
    config.scheduler.max_running = 8;
    config.thread_count = 2;
    return config;
}

/// How many of them the engine continues otherwise.
std::size_t differences(const std::filesystem::path& folder, const std::vector<Example>& expected,
                        const Way& way) {
    TestCore core(config_of(folder, way));
    std::vector<std::shared_ptr<Heard>> heard;
    for (const Example& example : expected) {
        heard.push_back(core.add(greedy(example.prompt, example.tokens.size())));
        if (!way.together) core.run();
    }
    core.run();
    core.audit_idle();
    CHECK_EQ(core.cache().hit_position_count > 0, way.caching);
    std::size_t count = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
        count += heard[i]->tokens != expected[i].tokens;
    return count;
}

/// A copy of a checkpoint with one thing changed in its config.json.
class Changed {
public:
    template <class F> Changed(const std::filesystem::path& from, F change) {
        std::filesystem::copy(from, folder_.path());
        Json config = read_json(from / "config.json");
        change(config);
        std::ofstream(folder_.path() / "config.json") << config;
    }
    [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

private:
    Folder folder_;
};

}  // namespace

static void b11_g15_greedy_tokens_are_those_of_transformers() {
    for (const std::filesystem::path& folder : checkpoints()) {
        const std::vector<Example> expected = examples(folder);
        for (const Way& way : {Way{false, false, 0, 16}, Way{true, false, 0, 16},
                               Way{true, false, 7, 5}, Way{false, true, 32, 16},
                               Way{true, true, 32, 16}}) {
            const std::size_t count = differences(folder, expected, way);
            if (count == 0) continue;
            fail(__FILE__, __LINE__,
                 folder.filename().string() + ": " + std::to_string(count) + " of " +
                     std::to_string(expected.size()) + " differ, " +
                     (way.caching ? "cached" : "not cached") + ", chunks of " +
                     std::to_string(way.chunk_size));
        }
    }
}

/// The tokens depend on the model, and on all of the prompt: else they would prove little.
static void b11_g15_other_settings_would_be_noticed() {
    constexpr Way plain{false, false, 0, 16};
    const auto rope = [](const char* name, double factor) {
        return [=](Json& config) {
            Json& value = config["rope_parameters"][name];
            value = value.get<double>() * factor;
        };
    };
    const auto notices = [&](const char* name, auto change) {
        const std::vector<Example> expected = examples(all / name);
        const std::size_t count = differences(Changed(all / name, change).path(), expected, plain);
        std::printf("          %s: %zu of %zu\n", name, count, expected.size());
        CHECK(count > expected.size() / 4);
    };
    notices("llama-grouped", rope("rope_theta", 1.25));
    notices("qwen3-tied", rope("rope_theta", 1.25));
    notices("llama-3.1", rope("factor", 1.25));
    notices("llama-3.1", rope("original_max_position_embeddings", 1.25));
    notices("llama-biased", [](Json& config) { config["rms_norm_eps"] = 5e-3; });
    const auto set = [](const char* name, const Json& value) {
        return [=](Json& config) { config[name] = value; };
    };
    notices("gemma3", set("sliding_window", 31));
    notices("gemma3", set("query_pre_attn_scalar", 30));
    for (const char* kind : {"full_attention", "sliding_attention"}) {
        notices("gemma3-mixed-bf16", [=](Json& config) {
            Json& theta = config["rope_parameters"][kind]["rope_theta"];
            theta = theta.get<double>() * 1.25;
        });
    }
    notices("qwen3-next", rope("partial_rotary_factor", 0.5));
    notices("qwen3-next-mixed-bf16", rope("rope_theta", 1.25));
    std::set<Ids> kinds;
    std::size_t count = 0;
    for (const std::filesystem::path& folder : checkpoints()) {
        for (const Example& example : examples(folder)) {
            kinds.insert(example.tokens);
            ++count;
        }
    }
    CHECK(kinds.size() > count * 9 / 10);
}

int main(int count, char** arguments) {
    if (count != 2) fail("main", 0, "usage: test_transformers FOLDER");
    all = arguments[1];
    RUN(b11_g15_greedy_tokens_are_those_of_transformers);
    RUN(b11_g15_other_settings_would_be_noticed);
    return 0;
}
