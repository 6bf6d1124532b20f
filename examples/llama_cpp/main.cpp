// Chats with a model of llama.cpp, without and with its sequence states in radixkv's snapshot
// cache: the same tokens, the times to the first of them, what the states take.
//
//     make llama-cpp
//     make llama-cpp ARGS='--model FILE.gguf'
#include "report.hpp"

#include "engine/options.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

namespace {

using example::Round;
using example::Series;

/// Of llama.cpp's log, what went wrong.
void log(ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

struct Arguments {
    std::string model;
    std::uint64_t threads = std::max(1U, std::thread::hardware_concurrency());
    std::uint64_t repeats = 3, byte_limit = 0;
    example::Workload workload;
};

bool parse(int count, char** words, Arguments& arguments) {
    std::uint64_t chats = arguments.workload.chat_count, turns = arguments.workload.turn_count;
    std::uint64_t reply = arguments.workload.reply_count;
    engine::Options options;
    options.text("--model", "a GGUF file", arguments.model)
        .number("--chats", "chats with one system prompt", chats, 1, 1000)
        .number("--turns", "turns of each", turns, 1, 1000)
        .number("--reply", "tokens of a reply, at most", reply, 1, 1000)
        .number("--byte-limit", "of the last rounds; 0: a third of what all snapshots take",
                arguments.byte_limit, 0, UINT64_MAX)
        .number("--repeats", "rounds of each kind, for the medians", arguments.repeats, 1, 100)
        .number("--threads", "of llama.cpp", arguments.threads, 1, 1024);
    if (!options.parse(count, words)) {
        std::printf("usage: %s --model FILE [option...]\n%s", words[0], options.help().c_str());
        return false;
    }
    if (arguments.model.empty()) throw engine::UsageError("--model: say which file");
    arguments.workload = {static_cast<std::size_t>(chats), static_cast<std::size_t>(turns),
                          static_cast<std::size_t>(reply)};
    return true;
}

/// Runs everything; whether the results are right.
bool compare(const Arguments& arguments) {
    const example::Model model(arguments.model);
    const example::Workload& workload = arguments.workload;
    example::Sequence sequence(model, workload.longest(model), arguments.threads);
    std::printf("%s: %s, %s state\n", arguments.model.c_str(), model.description().c_str(),
                model.is_recurrent() ? "a recurrent" : "a KV");

    const auto rounds = [&](const std::string& name, const rkv_snapshot_cache_config* limits) {
        Series series{name, {}};
        for (std::uint64_t i = 0; i < arguments.repeats; ++i)
            series.rounds.push_back(run(model, sequence, workload, limits));
        return series;
    };
    // The first use of the weights reads them from the disk: untimed.
    (void)run(model, sequence, {1, 1, 1}, nullptr);
    rkv_snapshot_cache_config limits = rkv::SnapshotCache::config();
    std::vector<Series> all{rounds("none", nullptr), rounds("all", &limits)};
    limits.byte_limit = arguments.byte_limit != 0 ? arguments.byte_limit
                                                  : all.back().rounds.front().most_bytes / 3;
    char name[64];
    std::snprintf(name, sizeof name, "at most %.2f MB",
                  static_cast<double>(limits.byte_limit) / 1e6);
    all.push_back(rounds(name, &limits));

    print_requests(all[0].median(), all[1].median());
    std::printf("\n");
    print_summary(all);

    const std::string difference = example::difference(all);
    std::size_t born = 0, died = 0;
    bool balanced = true;
    for (const Series& series : all) {
        for (const Round& round : series.rounds) {
            born += round.born_count;
            died += round.died_count;
            balanced = balanced && round.balanced;
        }
    }
    std::printf("\nsame tokens, same probabilities: %s\n",
                difference.empty() ? "yes" : ("no; " + difference).c_str());
    std::printf("snapshots: %zu made, %zu destroyed, each once: %s\n", born, died,
                balanced ? "yes" : "no");
    return difference.empty() && balanced;
}

int chat(int count, char** words) {
    rkv::require_version();
    Arguments arguments;
    if (!parse(count, words, arguments)) return 0;
    llama_log_set(log, nullptr);
    return compare(arguments) ? 0 : 1;
}

}  // namespace

int main(int count, char** words) { return engine::run_program(chat, count, words); }
