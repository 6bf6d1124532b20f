// Runs workloads with caching off and on: engine_bench --model FOLDER
#include "bench/chart.hpp"
#include "bench/chat.hpp"
#include "bench/client.hpp"
#include "bench/report.hpp"
#include "bench/run.hpp"
#include "bench/tiers.hpp"
#include "bench/two_stage.hpp"
#include "bench/workload.hpp"
#include "engine_options.hpp"
#include "http/server.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace engine;

constexpr const char* chat = "chat";
constexpr const char* two_stage = "two_stage";

struct BenchOptions {
    EngineOptions engine;
    WorkloadOptions workload;
    std::string workloads = "prefix_caching", transport = "direct", url, json, svg;
    std::string caching = "both";
    std::uint64_t max_output = 0, requests = 0, seed = 1;
    bool timings = false;

    void add_to(Options& options) {
        std::vector<std::string> names = workload_names();
        names.emplace_back(chat);
        names.emplace_back(two_stage);
        names.emplace_back("all");
        engine.add_to(options);
        options.word("--workload", "which, or all", workloads, names)
            .word("--caching", "both, off, or on", caching, {"both", "off", "on"})
            .word("--transport", "direct, or http over loopback", transport, {"direct", "http"})
            .text("--url", "a server that runs already", url)
            .real("--speed", "requests come this many times as fast", workload.speed, 0.001, 1000)
            .number("--max-output", "tokens a request; 0: as the workload says", max_output, 0,
                    1U << 20)
            .number("--requests", "how many; 0: as the workload says", requests, 0, 1U << 20)
            .number("--seed", "of the prompts", seed, 0, UINT64_MAX)
            .flag("--timings", "chat: where the time to first token of the last prompt goes",
                  timings)
            .text("--json", "file for the results", json)
            .text("--svg", "file for the chart of the first workload", svg);
    }
};

/// A server on a port of its own for as long as this lives.
class LoopbackServer {
public:
    explicit LoopbackServer(Engine& engine)
        : server_(config(), engine), thread_([this] { server_.run(); }) {}
    ~LoopbackServer() {
        server_.shutdown();
        thread_.join();
    }
    [[nodiscard]] std::string url() const {
        return "http://127.0.0.1:" + std::to_string(server_.port());
    }

private:
    Server server_;
    std::thread thread_;

    static ServerConfig config() {
        ServerConfig config;
        config.port = 0;
        // However many come: one that is refused would end the run.
        config.connections.count = std::numeric_limits<std::size_t>::max();
        config.max_answers = config.connections.count - 1;
        return config;
    }
};

/// The first request of a process pays for page faults and sleeping cores. It shares nothing with
/// the requests that count.
void warm_up(Client& client) {
    Workload workload{"warm-up", "", {}};
    BenchRequest request;
    request.prompt.assign(512, 0);
    request.output = 16;
    workload.requests.push_back(std::move(request));
    (void)run_workload(workload, client, "first");
}

/// An engine of its own, with a client.
class Subject {
public:
    /// However many requests wait: how long is what is measured.
    Subject(const BenchOptions& options, bool caching)
        : engine_(config(options, caching), std::numeric_limits<std::size_t>::max()),
          client_(std::make_unique<DirectClient>(engine_)) {
        if (options.transport == "http") {
            server_ = std::make_unique<LoopbackServer>(engine_);
            client_ = std::make_unique<HttpClient>(server_->url());
        }
        warm_up(*client_);
    }
    Client& client() { return *client_; }

private:
    Engine engine_;
    std::unique_ptr<LoopbackServer> server_;
    std::unique_ptr<Client> client_;

    static EngineConfig config(const BenchOptions& options, bool caching) {
        EngineConfig config = options.engine.config();
        config.prefix_caching = caching;
        return config;
    }
};

WorkloadOptions workload_options(const BenchOptions& options, const std::string& name) {
    WorkloadOptions workload = options.workload;
    workload.name = name;
    workload.max_output = options.max_output;
    workload.request_count = options.requests;
    workload.seed = options.seed;
    return workload;
}

std::string setting(const BenchOptions& options) {
    if (!options.url.empty()) return options.url;
    return "model " + options.engine.model + ", " + options.transport + ", chunks of " +
           std::to_string(options.engine.chunk_size);
}

/// The runs that --caching or --url asks for. `run` makes one with a client and a label.
template <class Run> void for_each_run(const BenchOptions& options, Run run) {
    if (!options.url.empty()) {
        HttpClient client(options.url);
        return run(client, "server");
    }
    for (const bool caching : {false, true}) {
        if (options.caching == (caching ? "off" : "on")) continue;
        Subject subject(options, caching);
        run(subject.client(), caching ? "caching on" : "caching off");
    }
}

BenchReport run_one(const BenchOptions& options, const std::string& name) {
    BenchReport report;
    report.workload = make_workload(workload_options(options, name));
    report.setting = setting(options);
    for_each_run(options, [&](Client& client, const char* label) {
        report.runs.push_back(run_workload(report.workload, client, label));
        report.summaries.push_back(summarize(report.workload, report.runs.back()));
    });
    if (report.runs.size() == 2)
        report.identical = same_outputs(report.runs[0], report.runs[1]);
    return report;
}

/// What is asked depends on what was answered, and when on how long it took.
BenchReport run_chats(const BenchOptions& options) {
    const std::filesystem::path folder = options.engine.config().model;
    const auto tokenizer = load_tokenizer(folder, read_model_config(folder / "config.json"));
    const ChatScript script = library_chat(workload_options(options, chat));
    const auto say = [](const std::string& text) {
        std::fputs(text.c_str(), stdout);
        std::fflush(stdout);
    };
    BenchReport report;
    report.setting = setting(options);
    for_each_run(options, [&](Client& client, const char* label) {
        ChatRun made = run_chat(script, client, *tokenizer, label, say);
        say("\n");
        report.summaries.push_back(summarize(made.workload, made.run));
        report.runs.push_back(std::move(made.run));
        report.workload = std::move(made.workload);
    });
    if (report.runs.size() == 2)
        report.identical = same_outputs(report.runs[0], report.runs[1]);
    if (options.url.empty() && options.caching != "off") {
        BenchRequest last = report.workload.requests.back();
        report.timings = options.timings;
        if (options.timings) last.output = 1;
        report.tiers = measure_tiers(options.engine.config(), last);
        for (const TierTime& time : report.tiers)
            report.identical =
                report.identical.value_or(true) && time.tokens == report.tiers.front().tokens;
    }
    return report;
}

/// Without a continuation by --caching; then with one, and caching if that is asked for.
std::vector<TwoStageRun> run_stages(const BenchOptions& options,
                                    const TwoStageWorkload& workload) {
    std::vector<TwoStageRun> runs;
    if (!options.url.empty()) {
        HttpClient client(options.url);
        // What one run leaves in the server's cache is not for the next.
        runs.push_back(run_two_stage(workload, client, {"whole prompt", false, "whole prompt"}));
        runs.push_back(run_two_stage(workload, client, {"continuation", true, "continuation"}));
        return runs;
    }
    const auto run = [&](bool caching, const TwoStageMode& mode) {
        Subject subject(options, caching);
        runs.push_back(run_two_stage(workload, subject.client(), mode));
    };
    if (options.caching != "on") run(false, {"caching off", false, {}});
    if (options.caching != "off") run(true, {"caching on", false, {}});
    run(options.caching != "off", {"continuation", true, {}});
    return runs;
}

void write_file(const std::string& path, const std::string& text) {
    if (path.empty()) return;
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw std::runtime_error(path + ": cannot be written");
    std::fprintf(stderr, "written: %s\n", path.c_str());
}

/// Over HTTP each request has a connection, with both of its ends here.
void allow_open_files() {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

int bench(int count, char** arguments) {
    BenchOptions options;
    Options parser;
    options.add_to(parser);
    if (!parser.parse(count, arguments)) {
        std::printf("usage: %s --model FOLDER [option...]\n%s", arguments[0],
                    parser.help().c_str());
        return 0;
    }
    if (options.workloads == two_stage && !options.svg.empty())
        throw UsageError(std::string("--svg: ") + two_stage + " has no chart");
    allow_open_files();
    std::vector<BenchReport> reports;
    const auto is_wanted = [&](const std::string& name) {
        return options.workloads == "all" || options.workloads == name;
    };
    const auto add = [&](BenchReport report) {
        std::printf("%s\n", report_table(report).c_str());
        std::fflush(stdout);
        reports.push_back(std::move(report));
    };
    for (const std::string& name : workload_names())
        if (is_wanted(name)) add(run_one(options, name));
    if (is_wanted(chat)) add(run_chats(options));
    bool differ = std::any_of(reports.begin(), reports.end(), [](const BenchReport& report) {
        return report.identical == false;
    });
    std::vector<std::string> json = report_json(reports);
    if (is_wanted(two_stage)) {
        const TwoStageWorkload workload = make_two_stage(workload_options(options, two_stage));
        const std::vector<TwoStageRun> runs = run_stages(options, workload);
        std::printf("%s\n", two_stage_table(workload, setting(options), runs).c_str());
        json.push_back(two_stage_json(workload, setting(options), runs));
        differ = differ || !same_results(runs);
    }
    write_file(options.json, json_list(json));
    if (!options.svg.empty()) write_file(options.svg, chart_svg(reports.front()));
    return differ ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) { return engine::run_program(bench, count, arguments); }
