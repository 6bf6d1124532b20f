// The server: engine_server --model FOLDER
#include "engine_options.hpp"
#include "http/server.hpp"

#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

namespace {

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

int serve(int count, char** arguments) {
    engine::EngineOptions engine_options;
    engine::ServerConfig config;
    std::uint64_t port = 8080, http_threads = 128, max_body_mib = 4, drain = 5, max_waiting = 1024;
    engine::Options options;
    engine_options.add_to(options);
    options.text("--host", "address to listen on", config.host)
        .number("--port", "0: any that is free", port, 0, 65535)
        .number("--http-threads", "connections served at once", http_threads, 1, 65536)
        .number("--max-body-mib", "longest body of a request", max_body_mib, 1, 1024)
        .number("--max-waiting", "requests that may wait", max_waiting, 1, 1U << 20)
        .number("--drain-seconds", "for running requests, on SIGTERM", drain, 0, 3600);
    if (!options.parse(count, arguments)) {
        std::printf("usage: %s --model FOLDER [option...]\n%s", arguments[0],
                    options.help().c_str());
        return 0;
    }
    config.port = static_cast<int>(port);
    config.thread_count = http_threads;
    config.max_body_bytes = max_body_mib << 20;
    config.drain = std::chrono::seconds(drain);
    const engine::EngineConfig engine_config = engine_options.config();
    config.served_model = name_of(engine_options.model);

    const sigset_t signals = block_signals();
    engine::Engine engine(engine_config, max_waiting);
    engine::Server server(config, engine);
    std::thread listener([&] { server.run(); });
    std::printf("listening on http://%s:%d\n", config.host.c_str(), server.port());
    std::fflush(stdout);
    int signal = 0;
    sigwait(&signals, &signal);
    std::printf("shutting down\n");
    std::fflush(stdout);
    server.shutdown();
    listener.join();
    return 0;
}

}  // namespace

int main(int count, char** arguments) { return engine::run_program(serve, count, arguments); }
