// The server: engine_server --model FOLDER
#include "engine_options.hpp"
#include "http/server.hpp"
#include "serve/event_publisher.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

namespace {

// What happens to the cache between two looks of a page or of routers: many thousand pages.
constexpr std::uint64_t journal_bytes = std::uint64_t{8} << 20;

/// SIGINT and SIGTERM, for every thread that is started from here on.
sigset_t block_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    // A client that is gone is an error of write(), not the end of the process.
    signal(SIGPIPE, SIG_IGN);
    return signals;
}

std::string name_of(const std::string& folder) {
    const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
    return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

/// What the command line says of clients.
class ClientOptions {
public:
    void add_to(engine::Options& options) {
        options
            .number("--max-connections", "open at once; then the slowest client is cut",
                    max_connections_, 2, 16384)
            .number("--max-answers", "completions answered at once; then 503", max_answers_, 1,
                    16383)
            .number("--max-body-mib", "longest body of a request", max_body_mib_, 1, 1024)
            .number("--idle-seconds", "for a connection without a request", idle_, 1, 3600)
            .number("--head-seconds", "for the head of a request", head_, 1, 3600)
            .number("--body-seconds", "for its body", body_, 1, 3600)
            .number("--write-seconds", "for a client that takes nothing", write_, 1, 3600);
    }
    void apply_to(engine::ServerConfig& config) const {
        allow_open_files(max_connections_ + 64);
        config.max_answers = max_answers_;
        config.connections.count = max_connections_;
        config.connections.body_bytes = max_body_mib_ << 20;
        config.connections.idle = std::chrono::seconds(idle_);
        config.connections.head = std::chrono::seconds(head_);
        config.connections.body = std::chrono::seconds(body_);
        config.connections.write = std::chrono::seconds(write_);
    }

private:
    std::uint64_t max_connections_ = 768, max_answers_ = 512, max_body_mib_ = 4;
    std::uint64_t idle_ = 5, head_ = 10, body_ = 30, write_ = 10;

    static void allow_open_files(std::uint64_t count) {
        rlimit files{};
        if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= count) return;
        if (files.rlim_max < count)
            throw engine::UsageError("--max-connections: this process may open only " +
                                     std::to_string(files.rlim_max) + " files");
        files.rlim_cur = count;
        setrlimit(RLIMIT_NOFILE, &files);
    }
};

/// Says of settings that contradict each other what the server would, before a model is loaded.
void check(const engine::ServerConfig& config) {
    try {
        engine::Server::check(config);
    } catch (const std::runtime_error& error) {
        throw engine::UsageError(error.what());
    }
}

int serve(int count, char** arguments) {
    engine::EngineOptions engine_options;
    engine::ServerConfig config;
    engine::EventConfig events;
    ClientOptions client_options;
    std::uint64_t port = 8080, drain = 5, max_waiting = 1024;
    engine::Options options;
    engine_options.add_to(options);
    options.text("--host", "address to listen on", config.host)
        .number("--port", "0: any that is free", port, 0, 65535)
        .number("--max-waiting", "requests that may wait", max_waiting, 1, 1U << 20)
        .number("--drain-seconds", "for running requests, on SIGTERM", drain, 0, 3600);
    client_options.add_to(options);
    options.flag("--page", "show the cache at /, prompts and all; on a loopback address alone",
                 config.page)
        .text("--events", "tell routers what the cache holds, at an endpoint as tcp://*:5557",
              events.endpoint)
        .text("--events-replay", "where they ask for what they missed, as tcp://*:5657",
              events.replay_endpoint);
    if (!options.parse(count, arguments)) {
        std::printf("usage: %s --model FOLDER [option...]\n%s", arguments[0],
                    options.help().c_str());
        return 0;
    }
    config.port = static_cast<int>(port);
    config.drain = std::chrono::seconds(drain);
    client_options.apply_to(config);
    check(config);
    if (events.endpoint.empty() && !events.replay_endpoint.empty())
        throw engine::UsageError("--events-replay: needs --events");
    engine::EngineConfig engine_config = engine_options.config();
    if (config.page || !events.endpoint.empty()) engine_config.kv.journal_bytes = journal_bytes;
    config.served_model = name_of(engine_options.model);

    const sigset_t signals = block_signals();
    engine::Engine engine(engine_config, max_waiting);
    std::optional<engine::EventPublisher> publisher;
    if (!events.endpoint.empty()) publisher.emplace(engine.core(), events);
    engine::Server server(config, engine);
    bool could_listen = true;
    std::thread listener([&] {
        could_listen = server.run();
        // Whoever watches this process is to see it end.
        if (!could_listen) kill(getpid(), SIGTERM);
    });
    std::printf("listening on http://%s:%d\n", config.host.c_str(), server.port());
    std::fflush(stdout);
    int signal = 0;
    sigwait(&signals, &signal);
    std::printf("shutting down\n");
    std::fflush(stdout);
    server.shutdown();
    listener.join();
    if (!could_listen) std::fprintf(stderr, "connections could not be accepted any more\n");
    if (engine_options.speculate > 0) {
        const engine::Metrics& metrics = engine.core().metrics();
        const std::uint64_t drafted = metrics.drafted_tokens, accepted = metrics.accepted_tokens;
        const double most = drafted > 0 ? static_cast<double>(drafted) : 1.0;
        std::printf("drafts: %llu tokens, %llu accepted (%.1f %%)\n",
                    static_cast<unsigned long long>(drafted),
                    static_cast<unsigned long long>(accepted),
                    100.0 * static_cast<double>(accepted) / most);
    }
    return could_listen ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) { return engine::run_program(serve, count, arguments); }
