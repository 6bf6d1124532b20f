// What the engine's tests share: small models in a folder of their own, and a listener that keeps
// what it hears.
#ifndef RADIXKV_TESTS_ENGINE_FIXTURE_HPP
#define RADIXKV_TESTS_ENGINE_FIXTURE_HPP

#include "../cpp/check.hpp"

#include "checkpoint/writer.hpp"
#include "serve/core.hpp"
#include "serve/text.hpp"

#include <stdlib.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test {

/// A folder that goes with this object.
class Folder {
public:
    Folder() {
        std::string pattern = std::filesystem::temp_directory_path() / "radixkv-engine-XXXXXX";
        if (mkdtemp(pattern.data()) == nullptr) fail("mkdtemp", 0, "no temporary folder");
        path_ = pattern;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

/// Two layers, four query heads over two heads of K and V: everything that a large model has.
inline engine::CheckpointSpec tiny_spec() {
    return engine::llama_checkpoint(2, 64, 128, 4, 2, 64);
}

/// A checkpoint in a folder of its own.
class Checkpoint {
public:
    explicit Checkpoint(const engine::CheckpointSpec& spec = tiny_spec()) {
        engine::write_checkpoint(spec, folder_.path());
    }
    [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

private:
    Folder folder_;
};

/// Keeps everything that is said about one request.
struct Heard final : engine::Listener {
    /// What the first sequence generated.
    std::vector<std::uint32_t> tokens;
    std::string text;
    /// What each of them generated, the first one among them.
    std::map<std::size_t, std::vector<std::uint32_t>> sequences;
    std::map<std::size_t, std::vector<double>> logprobs;
    /// After which the first token was drawn: those of the prompt's last position.
    std::vector<float> first_logits;
    std::optional<engine::RequestResult> result;

    void on_token(const engine::TokenOutput& token) override {
        sequences[token.sequence].push_back(token.id);
        if (token.logprobs != nullptr)
            logprobs[token.sequence].push_back(token.logprobs->logprob);
        if (token.sequence != 0) return;
        if (tokens.empty() && token.logits != nullptr)
            first_logits.assign(token.logits, token.logits + token.vocab_size);
        tokens.push_back(token.id);
        text += token.text;
    }
    /// The tokens of the choices, in the order of the answer.
    [[nodiscard]] std::vector<std::vector<std::uint32_t>> choices() const {
        std::vector<std::vector<std::uint32_t>> out;
        for (const engine::ChoiceResult& choice : result->choices)
            out.push_back(sequences.at(choice.sequence));
        return out;
    }
    void on_finish(engine::RequestResult&& end) override {
        if (result) fail("Heard", 0, "a request ended twice");
        result = std::move(end);
        for (const engine::ChoiceResult& choice : result->choices)
            if (choice.sequence == 0) text += choice.text;
    }
};

/// A core of the tiny model, with requests numbered as they come.
class TestCore {
public:
    explicit TestCore(const engine::EngineConfig& config) : core_(config) {}

    std::shared_ptr<Heard> add(engine::RequestSpec spec) {
        auto heard = std::make_shared<Heard>();
        add(std::move(spec), heard);
        return heard;
    }
    void add(engine::RequestSpec spec, std::shared_ptr<engine::Listener> listener) {
        core_.add(++last_, core_.accept(std::move(spec)), std::move(listener));
    }
    [[nodiscard]] std::uint64_t last() const { return last_; }
    bool step() { return core_.step(); }
    void run() {
        while (core_.step()) {
        }
    }
    /// One request from its beginning to its end.
    std::shared_ptr<Heard> complete(engine::RequestSpec spec) {
        auto heard = add(std::move(spec));
        run();
        return heard;
    }
    engine::Core& core() { return core_; }
    [[nodiscard]] rkv_page_table_stats pages() const { return core_.kv().table().stats(); }
    [[nodiscard]] rkv_cache_stats cache() const { return core_.kv().cache().stats(); }
    /// K19: no page is lost, and with no request left none belongs to one.
    void audit_idle() const {
        audit(core_.kv().table(), core_.kv().cache());
        CHECK_EQ(pages().private_page_count, 0U);
        CHECK_EQ(pages().reclaimable_page_count, pages().cached_page_count);
        CHECK_EQ(pages().free_slot_count, pages().slot_count);
        CHECK_EQ(cache().sequence_count, 0U);
        for (std::uint32_t group = 0; group < core_.kv().groups().list().size(); ++group) {
            const rkv_pool_stats pool = core_.kv().table().pool_stats(group);
            CHECK_EQ(pool.private_page_count, 0U);
            CHECK_EQ(pool.reclaimable_page_count, pool.cached_page_count);
            CHECK_EQ(pool.free_page_count + pool.cached_page_count, pool.total_page_count);
        }
    }

private:
    engine::Core core_;
    std::uint64_t last_ = 0;
};

/// One thread, so that programs side by side on a busy machine don't wait for each other's cores.
inline engine::EngineConfig tiny_config(const Checkpoint& checkpoint) {
    engine::EngineConfig config;
    config.model = checkpoint.path();
    config.kv.page_count = 256;
    config.thread_count = 1;
    config.scheduler.max_running = 8;
    return config;
}

/// `count` tokens that follow from `seed`.
inline std::vector<std::uint32_t> random_tokens(std::uint64_t seed, std::size_t count) {
    std::vector<std::uint32_t> tokens;
    std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
    for (std::size_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        tokens.push_back(static_cast<std::uint32_t>(state >> 33) % 256);
    }
    return tokens;
}

inline std::vector<std::uint32_t> joined(std::vector<std::uint32_t> a,
                                         const std::vector<std::uint32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// A greedy request.
inline engine::RequestSpec greedy(std::vector<std::uint32_t> prompt, std::size_t max_tokens) {
    engine::RequestSpec spec;
    spec.prompt = std::move(prompt);
    spec.max_tokens = max_tokens;
    spec.ignore_eos = true;
    return spec;
}

/// Runs f, which must throw an E whose text contains `part`.
template <class E, class F>
void refuses(const std::string& part, F f, const char* file, int line) {
    try {
        f();
    } catch (const E& error) {
        if (std::string(error.what()).find(part) == std::string::npos)
            fail(file, line, "the reason \"" + std::string(error.what()) + "\" lacks " + part);
        return;
    }
    fail(file, line, "did not refuse: " + part);
}

/// Runs a test and says how long it took.
inline void timed(const char* name, void (*run)()) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    std::printf("%6.2f s  %s\n", time.count(), name);
    std::fflush(stdout);
}

}  // namespace test

#define RUN(name) test::timed(#name, name)
#define CHECK_REFUSES(type, part, ...) \
    test::refuses<type>(part, [&] { __VA_ARGS__; }, __FILE__, __LINE__)

#endif  // RADIXKV_TESTS_ENGINE_FIXTURE_HPP
