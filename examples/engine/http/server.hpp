// The HTTP server: POST /v1/chat/completions, POST /v1/completions and DELETE of what one retained,
// GET /v1/models, /health, /metrics; GET / and /cache/events, the page.
#ifndef ENGINE_HTTP_SERVER_HPP
#define ENGINE_HTTP_SERVER_HPP

#include "http/connections.hpp"
#include "serve/engine.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace engine {

struct ServerConfig {
    std::string host = "127.0.0.1";
    /// 0: any that is free.
    int port = 8080;
    /// What the model is called in requests and responses.
    std::string served_model = "model";
    /// Of clients, who may mean ill.
    ConnectionLimits connections;
    /// Completions answered at once; more are refused. Those that were ready within half a second
    /// don't count while they are written. Fewer than connections, so that there always is one for
    /// who asks how the server is.
    std::size_t max_answers = 512;
    /// How long requests may go on after shutdown().
    std::chrono::milliseconds drain{5000};
    /// And how long those that are cancelled then may take to tell their clients; no longer than
    /// `drain`.
    std::chrono::milliseconds tell{5000};
    /// Show the cache and its texts, at /. Needs a cache with a journal, and a loopback address.
    bool page = false;
};

class Server {
public:
    /// Throws std::runtime_error that names the option when the settings contradict each other.
    static void check(const ServerConfig& config);
    /// Binds. Throws std::runtime_error when that fails, and what check() throws.
    Server(const ServerConfig& config, Engine& engine);
    ~Server();

    [[nodiscard]] int port() const noexcept { return port_; }
    /// Serves until shutdown() is done. False when connections could not be accepted any more.
    bool run();
    /// From another thread than run(), which was called or will be: refuses new requests with 503,
    /// lets those that run go on for a while, cancels what is left, and closes. Returns when the
    /// last response is written, or what is left of them is cut.
    void shutdown();

private:
    class Routes;

    ServerConfig config_;
    Engine& engine_;
    int port_ = 0;
    std::atomic<bool> ended_{false};
    std::unique_ptr<Routes> routes_;
};

}  // namespace engine

#endif  // ENGINE_HTTP_SERVER_HPP
