// B11, B06, C08, C10, G15: clients that come and go for a while, in little memory: random prompts
// that share beginnings, samples, beams, continuations, salts, cancellations, steps that fail. At
// the end every request has had its answer, equal prompts had equal ones, and no page is lost.
//
//     test_soak [seconds] [seed]
#include "fixture.hpp"
#include "serve/engine.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

using namespace test;
using namespace std::chrono_literals;

namespace {

/// The longest output that was seen for each prompt; any other must agree with it.
class Outputs {
public:
    void check(const std::vector<std::uint32_t>& prompt,
               const std::vector<std::uint32_t>& output) {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::vector<std::uint32_t>& known = longest_[prompt];
        const std::size_t common = std::min(known.size(), output.size());
        CHECK(std::equal(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(common),
                         known.begin()));
        compared_ += common;
        if (output.size() > known.size()) known = output;
    }
    [[nodiscard]] std::size_t compared() const { return compared_; }

private:
    std::mutex mutex_;
    std::map<std::vector<std::uint32_t>, std::vector<std::uint32_t>> longest_;
    std::size_t compared_ = 0;
};

/// Waits for one request, on another thread than the engine's.
class Answer final : public engine::Listener {
public:
    void on_token(const engine::TokenOutput& token) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        CHECK(!result_);
        tokens_.push_back(token.id);
        sequences_[token.sequence].push_back(token.id);
    }
    void on_finish(engine::RequestResult&& result) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        CHECK(!result_);
        result_ = std::move(result);
        finished_.notify_one();
    }
    bool wait(std::chrono::milliseconds time) {
        std::unique_lock<std::mutex> lock(mutex_);
        return finished_.wait_for(lock, time, [&] { return result_.has_value(); });
    }
    [[nodiscard]] const std::vector<std::uint32_t>& tokens() const { return tokens_; }
    [[nodiscard]] std::vector<std::uint32_t> tokens_of(std::size_t sequence) const {
        const auto found = sequences_.find(sequence);
        return found == sequences_.end() ? std::vector<std::uint32_t>() : found->second;
    }
    [[nodiscard]] const engine::RequestResult& result() const { return *result_; }

private:
    std::mutex mutex_;
    std::condition_variable finished_;
    std::vector<std::uint32_t> tokens_;
    std::map<std::size_t, std::vector<std::uint32_t>> sequences_;
    std::optional<engine::RequestResult> result_;
};

struct Counts {
    std::atomic<std::size_t> accepted{0}, finished{0}, cancelled{0}, failed{0}, refused{0};
    std::atomic<std::size_t> inherited{0};
};

class SoakClient {
public:
    SoakClient(engine::Engine& engine, Outputs& outputs, Counts& counts, std::uint64_t seed)
        : engine_(engine), outputs_(outputs), counts_(counts), random_(seed) {}

    void run_until(const std::atomic<bool>& is_over) {
        while (!is_over) one_request();
        for (const std::string& id : retained_ids_) engine_.drop(id);
    }

private:
    engine::Engine& engine_;
    Outputs& outputs_;
    Counts& counts_;
    std::mt19937_64 random_;
    /// Some of what was retained, with its text; the text of the latest continuation; and all ids.
    struct Kept {
        std::string id;
        std::vector<std::uint32_t> tokens;
        std::string cache_salt;
    };
    std::vector<Kept> kept_;
    std::vector<std::uint32_t> continued_;
    std::vector<std::string> retained_ids_;

    std::size_t below(std::size_t limit) { return random_() % limit; }

    engine::RequestSpec make() {
        // Three levels with a few choices each: some prompts are equal, many begin alike.
        std::vector<std::uint32_t> prompt = random_tokens(below(3), 20 + below(2) * 37);
        if (below(4) != 0) prompt = joined(prompt, random_tokens(10 + below(4), 9 + below(2) * 50));
        if (below(3) == 0) prompt = joined(prompt, random_tokens(random_(), 1 + below(60)));
        engine::RequestSpec spec = greedy(prompt, 1 + below(60));
        if (below(5) == 0) spec.sampling = {0.8, 0.9, random_()};
        if (below(3) == 0) spec.cache_salt = std::string(1, static_cast<char>('a' + below(3)));
        if (below(8) == 0) spec.stop = {"e", "\n"};
        if (below(50) == 0) spec.prompt.push_back(999);  // no such token
        if (below(6) == 0) {
            spec.beam_width = spec.choice_count = 2 + below(4);
            spec.max_tokens = 1 + below(20);
            spec.sampling = {};
        } else if (below(6) == 0) {
            spec.sample_count = spec.choice_count = 2 + below(4);
        }
        if (below(3) == 0) {
            spec.retain = true;
            spec.id = std::to_string(random_());
        }
        return spec;
    }

    /// Something that goes on from what was retained, if it still is.
    engine::RequestSpec make_continuation() {
        const Kept& kept = kept_[below(kept_.size())];
        engine::RequestSpec spec = greedy({}, 1 + below(20));
        spec.cache_salt = kept.cache_salt;
        spec.continuation = engine::Continuation{kept.id, random_tokens(below(3), below(6))};
        continued_ = joined(kept.tokens, spec.continuation->suffix);
        if (below(2) == 0) spec.prompt = continued_;
        return spec;
    }

    /// A key under which equal requests have equal outputs; empty for those that draw.
    static std::vector<std::uint32_t> key_of(const engine::RequestSpec& spec) {
        if (spec.sampling.temperature > 0) return {};
        std::vector<std::uint32_t> key = spec.prompt;
        // A search depends on how long it goes on.
        if (spec.searches())
            key.insert(key.end(), {1000000, static_cast<std::uint32_t>(spec.max_tokens),
                                   static_cast<std::uint32_t>(spec.beam_width),
                                   static_cast<std::uint32_t>(spec.stop.size())});
        return key;
    }

    void keep(const engine::RequestSpec& spec, const Answer& answer) {
        for (const engine::ChoiceResult& choice : answer.result().choices) {
            if (choice.retained_id.empty()) continue;
            retained_ids_.push_back(choice.retained_id);
            const auto tokens = joined(spec.prompt, answer.tokens_of(choice.sequence));
            if (tokens.size() < 250) kept_.push_back({choice.retained_id, tokens, spec.cache_salt});
        }
        while (kept_.size() > 12) {
            if (below(2) == 0) engine_.drop(kept_.front().id);
            kept_.erase(kept_.begin());
        }
    }

    void one_request() {
        engine::RequestSpec spec =
            !kept_.empty() && below(4) == 0 ? make_continuation() : make();
        const auto answer = std::make_shared<Answer>();
        try {
            engine_.submit(spec, answer);
        } catch (const engine::InvalidRequest&) {
            ++counts_.refused;
            return;
        } catch (const engine::Overloaded&) {
            ++counts_.refused;
            std::this_thread::sleep_for(2ms);
            return;
        }
        ++counts_.accepted;
        if (below(4) == 0) {
            const bool over = answer->wait(std::chrono::milliseconds(below(20)));
            engine_.cancel(*answer);
            if (over) engine_.cancel(*answer);
        }
        CHECK(answer->wait(120s));
        const engine::RequestResult& result = answer->result();
        switch (result.finish) {
            case engine::Finish::cancelled: ++counts_.cancelled; break;
            case engine::Finish::error: ++counts_.failed; break;
            default: ++counts_.finished;
        }
        CHECK_EQ(result.completion_tokens, answer->tokens().size());
        if (result.finish == engine::Finish::length && spec.width() == 1)
            CHECK_EQ(answer->tokens().size(), spec.max_tokens);
        if (result.inherited_tokens > 0) ++counts_.inherited;
        if (spec.continuation) spec.prompt = continued_;
        keep(spec, *answer);
        // Also what was cut short must be the beginning of what it would have been.
        if (const auto key = key_of(spec); !key.empty())
            outputs_.check(key, spec.searches() ? answer->tokens() : answer->tokens_of(0));
    }
};

/// A model, of which each pool has less than four long requests want.
void soak(const char* name, const engine::CheckpointSpec& spec, std::chrono::milliseconds time,
          std::uint64_t seed) {
    const Checkpoint checkpoint(spec);
    std::atomic<std::uint64_t> steps{0};
    engine::EngineConfig config = tiny_config(checkpoint);
    config.thread_count = 2;
    config.kv.page_count = 40;
    config.kv.window_page_count = 20;
    config.kv.state_page_count = 9;
    config.kv.retained_sequences = 16;
    config.scheduler.max_running = 6;
    config.scheduler.chunk_size = 48;
    config.before_forward = [&](std::size_t) {
        if (++steps % 997 == 0) throw std::runtime_error("this step fails");
    };
    Outputs outputs;
    Counts counts;
    engine::Engine engine(config, 8);
    std::atomic<bool> is_over{false};
    std::vector<std::thread> clients;
    for (std::uint64_t i = 0; i < 10; ++i) {
        clients.emplace_back([&, i] {
            SoakClient(engine, outputs, counts, seed * 1000 + i).run_until(is_over);
        });
    }
    // Another thread looks at the books all the time.
    const auto end = engine::Clock::now() + time;
    // On a slow machine what is rare takes longer to be seen once.
    const auto latest = end + 60s;
    const auto has_seen_all = [&] {
        return counts.inherited > 0 && engine.core().metrics().preemptions > 0;
    };
    while (engine::Clock::now() < (has_seen_all() ? end : latest)) {
        engine.core().kv().table().check_invariants();
        engine.core().kv().cache().check_invariants();
        std::this_thread::sleep_for(20ms);
    }
    is_over = true;
    for (std::thread& client : clients) client.join();
    CHECK(engine.wait_idle(60s));
    CHECK(engine.healthy());

    const engine::Kv& kv = engine.core().kv();
    audit(kv.table(), kv.cache());
    for (std::uint32_t group = 0; group < kv.groups().list().size(); ++group) {
        const rkv_pool_stats pool = kv.table().pool_stats(group);
        CHECK_EQ(pool.private_page_count, 0U);
        CHECK_EQ(pool.reclaimable_page_count, pool.cached_page_count);
        CHECK_EQ(pool.free_page_count + pool.cached_page_count, pool.total_page_count);
    }
    CHECK_EQ(kv.table().stats().free_slot_count, kv.table().stats().slot_count);
    CHECK_EQ(kv.cache().stats().sequence_count, 0U);
    CHECK_EQ(counts.accepted.load(), counts.finished + counts.cancelled + counts.failed);
    const engine::Metrics& metrics = engine.core().metrics();
    CHECK_EQ(metrics.finished_cancelled.load(), counts.cancelled.load());
    CHECK_EQ(metrics.finished_error.load(), counts.failed.load());
    CHECK(metrics.preemptions > 0 && kv.cache().stats().evicted_page_count > 0);
    CHECK(outputs.compared() > 0 && counts.inherited > 0 && metrics.cached_tokens > 0);
    std::printf("%s: %zu requests: %zu finished, %zu cancelled, %zu failed; %zu refused\n",
                name, counts.accepted.load(), counts.finished.load(), counts.cancelled.load(),
                counts.failed.load(), counts.refused.load());
    std::printf("    %llu steps, %llu preemptions, %llu pages evicted, %zu tokens compared, %llu "
                "found\n",
                static_cast<unsigned long long>(steps.load()),
                static_cast<unsigned long long>(metrics.preemptions.load()),
                static_cast<unsigned long long>(kv.cache().stats().evicted_page_count),
                outputs.compared(),
                static_cast<unsigned long long>(metrics.cached_tokens.load()));
}

}  // namespace

int main(int count, char** arguments) {
    const long seconds = count > 1 ? std::atol(arguments[1]) : 10;
    const std::uint64_t seed =
        count > 2 ? std::strtoull(arguments[2], nullptr, 10) : std::random_device()();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    const engine::CheckpointSpec shape = engine::llama_checkpoint(4, 64, 96, 2, 1, 64);
    const std::chrono::milliseconds time = std::chrono::seconds(seconds);
    soak("one kind of layers", tiny_spec(), time, seed);
    soak("windows", engine::gemma3_checkpoint(shape, 24), time / 2, seed);
    soak("states", engine::qwen3_next_checkpoint(shape), time / 2, seed);
    return 0;
}
