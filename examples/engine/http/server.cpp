#include "http/server.hpp"

#include "http/active.hpp"
#include "http/completion_request.hpp"
#include "http/completion_response.hpp"
#include "http/limited_server.hpp"
#include "http/loopback.hpp"
#include "http/output_queue.hpp"
#include "http/page_routes.hpp"
#include "http/prometheus.hpp"
#include "http/request_head.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace engine {

namespace {

using namespace std::chrono_literals;

constexpr const char* json_type = "application/json";
// How often a thread that waits for tokens looks whether its client is still there.
constexpr auto look_at_client = 50ms;
// An answer that is ready within this time goes out in one piece, and with the right status if it
// is an error. Later ones begin at once and are finished when they are: only so the client's
// leaving can be noticed.
constexpr auto whole_answer = 500ms;

void answer(httplib::Response& response, const ApiError& error) {
    response.status = error.status();
    for (const auto& [name, value] : error.headers()) response.set_header(name, value);
    response.set_content(error.body(), json_type);
}

/// A reason of the engine begins with the field. The prompt of a chat is its messages.
ApiError refusal(std::string reason, bool is_chat) {
    std::string field = reason.substr(0, reason.find(':'));
    if (is_chat && field == "prompt") {
        reason.replace(0, field.size(), "messages");
        field = "messages";
    }
    return {400, reason, field};
}

/// One completion between its client and the engine. Cancels the request when it is dropped.
class Exchange {
public:
    Exchange(CompletionRequest request, std::string served_model, Engine& engine)
        : engine_(engine),
          stream_(request.stream),
          queue_(std::make_shared<OutputQueue>()),
          response_(request, std::move(served_model), engine.core().tokenizer()) {
        // Last: whoever is not made to its end cancels nothing.
        engine.submit(std::move(request.spec), queue_);
    }
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    ~Exchange() {
        if (!response_.finished()) engine_.cancel(*queue_);
    }

    [[nodiscard]] bool streams() const noexcept { return stream_; }
    [[nodiscard]] bool finishes_within(std::chrono::milliseconds time) {
        return queue_->wait_finished(time);
    }
    /// After finishes_within(): the whole answer.
    void finish(httplib::Response& response) {
        response_.collect(queue_->wait(0ms));
        if (const std::optional<ApiError> error = response_.failure())
            return answer(response, *error);
        response.set_content(response_.whole(), json_type);
    }
    /// Writes what there is, or waits a little for it. False when the client is gone.
    bool write_some(httplib::DataSink& sink) {
        const OutputQueue::Output output = queue_->wait(look_at_client);
        std::string text;
        if (stream_) {
            text = response_.events(output);
        } else {
            response_.collect(output);
            if (response_.finished()) text = response_.whole();
        }
        if (text.empty()) return sink.is_writable();
        if (!sink.write(text.data(), text.size())) return false;
        if (response_.finished()) sink.done();
        return true;
    }

private:
    Engine& engine_;
    bool stream_;
    std::shared_ptr<OutputQueue> queue_;
    CompletionResponse response_;
};

}  // namespace

class Server::Routes {
public:
    Routes(const ServerConfig& config, Engine& engine)
        : config_(config),
          engine_(engine),
          http_(config.connections, [this](const httplib::Request& request) {
              check_head(request, config_.connections.body_bytes);
          }),
          page_(config.page, engine, draining_) {
        http_.set_payload_max_length(config.connections.body_bytes);
        // A small event must not wait for the next one.
        http_.set_tcp_nodelay(true);
        // The library's own options let a second server share the port with the first.
        http_.set_socket_options([this](int socket) {
            const int yes = 1;
            setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
            socket_ = socket;
        });
        on_post("/v1/completions", &Routes::completion_of);
        on_post("/v1/chat/completions", &Routes::chat_of);
        http_.Delete(R"(/v1/completions/([^/]+))", [this](const auto& request, auto& response) {
            forget(request.matches[1], response);
        });
        http_.Get("/v1/models", [this](const auto&, auto& response) {
            const nlohmann::json list = {{"object", "list"}, {"data", {model()}}};
            response.set_content(list.dump(), json_type);
        });
        http_.Get(R"(/v1/models/(.+))", [this](const auto& request, auto& response) {
            if (request.matches[1] != config_.served_model)
                return answer(response, ApiError(404, "there is no such model", "model",
                                                 "model_not_found"));
            response.set_content(model().dump(), json_type);
        });
        http_.Get("/health", [this](const auto&, auto& response) { health(response); });
        http_.Get("/metrics", [this](const auto&, auto& response) {
            response.set_content(prometheus_text(engine_.core()),
                                 "text/plain; version=0.0.4; charset=utf-8");
        });
        page_.add_to(http_);
        http_.set_error_handler([](const auto& request, auto& response) {
            if (response.body.empty()) answer(response, status_error(request, response.status));
        });
        http_.set_exception_handler([](const auto&, auto& response, std::exception_ptr thrown) {
            try {
                std::rethrow_exception(thrown);
            } catch (const ApiError& error) {
                answer(response, error);
            } catch (const std::exception& error) {
                answer(response, ApiError(500, error.what()));
            }
        });
    }

    httplib::Server& http() { return http_; }
    /// Room for a burst of connections; the library's is five, and who finds none waits a second.
    void widen_backlog() const { ::listen(socket_, 512); }
    void drain() { draining_ = true; }
    [[nodiscard]] bool idle() const { return unwritten_ == 0 && page_.idle(); }

private:
    const ServerConfig& config_;
    Engine& engine_;
    LimitedServer http_;
    std::atomic<bool> draining_{false};
    /// Completions that the engine is at, or that are written while it is: of those there are
    /// `max_answers`. And all whose answer is not written yet: one that was ready at once takes no
    /// place while its client takes his time.
    std::atomic<std::size_t> active_{0}, unwritten_{0};
    PageRoutes page_;
    int socket_ = -1;
    /// In seconds, as clients want to know when a model was made.
    const std::int64_t started_ = std::chrono::duration_cast<std::chrono::seconds>(
                                      std::chrono::system_clock::now().time_since_epoch())
                                      .count();

    static ApiError status_error(const httplib::Request& request, int status) {
        if (status == 404) return {404, "there is no " + request.method + " " + request.path};
        return {status, "the request cannot be read"};
    }

    using Parse = CompletionRequest (Routes::*)(const std::string& body) const;

    /// Takes the body as it is, whatever its client calls it: to curl JSON is a form, of which the
    /// library would read no more than 8 KiB.
    void on_post(const char* path, Parse parse) {
        http_.Post(path, [this, parse](const httplib::Request& request,
                                       httplib::Response& response,
                                       const httplib::ContentReader& read) {
            std::string body;
            const bool is_whole = read([&body](const char* data, std::size_t size) {
                body.append(data, size);
                return true;
            });
            // If it isn't, the client has left, or has been answered.
            if (is_whole) completions(body, parse, request.version != "HTTP/1.0", response);
        });
    }

    [[nodiscard]] CompletionRequest completion_of(const std::string& body) const {
        return parse_completion(body, engine_.core().tokenizer(), config_.served_model);
    }
    [[nodiscard]] CompletionRequest chat_of(const std::string& body) const {
        return parse_chat(body, engine_.core().tokenizer(), config_.served_model,
                          engine_.core().longest_text());
    }

    void completions(const std::string& body, Parse parse, bool takes_chunks,
                     httplib::Response& response) {
        try {
            LimitedServer::keep(std::make_shared<Counted>(unwritten_));
            auto active = std::make_shared<Active>(active_, config_.max_answers,
                                                   "requests are being answered");
            // After it is counted: who drains sees one of both.
            if (draining_) throw ApiError(503, "the server is shutting down");
            begin((this->*parse)(body), takes_chunks, std::move(active), response);
        } catch (const ApiError& error) {
            answer(response, error);
        } catch (const UnknownParent& error) {
            answer(response, ApiError(404, error.what(), "continuation_of"));
        } catch (const ParentRunning& error) {
            answer(response, ApiError(409, error.what(), "continuation_of"));
        } catch (const InvalidRequest& error) {
            answer(response, refusal(error.what(), parse == &Routes::chat_of));
        } catch (const Overloaded& error) {
            answer(response, ApiError(503, error.what()));
        }
    }

    void begin(CompletionRequest request, bool takes_chunks, std::shared_ptr<Active> active,
               httplib::Response& response) {
        const auto exchange =
            std::make_shared<Exchange>(std::move(request), config_.served_model, engine_);
        if (!exchange->streams() && exchange->finishes_within(whole_answer))
            return exchange->finish(response);
        const char* type = exchange->streams() ? "text/event-stream" : json_type;
        // Owns the exchange: it ends with the response, however that ends.
        const auto provide = [active = std::move(active), exchange](std::size_t,
                                                                    httplib::DataSink& sink) {
            return exchange->write_some(sink);
        };
        // HTTP/1.0 has no chunks: there the connection ends with the answer.
        if (takes_chunks)
            response.set_chunked_content_provider(type, provide);
        else
            response.set_content_provider(type, provide);
        if (exchange->streams()) response.set_header("Cache-Control", "no-cache");
    }

    /// Nobody goes on from a completion any more.
    void forget(const std::string& id, httplib::Response& response) {
        if (!engine_.drop(id))
            return answer(response, ApiError(404, "nothing is retained under " + id));
        const nlohmann::json body = {
            {"id", id}, {"object", "text_completion.deleted"}, {"deleted", true}};
        response.set_content(body.dump(), json_type);
    }

    [[nodiscard]] nlohmann::json model() const {
        return {{"id", config_.served_model},
                {"object", "model"},
                {"created", started_},
                {"owned_by", "radixkv"}};
    }

    void health(httplib::Response& response) const {
        if (!engine_.healthy()) return answer(response, ApiError(503, "the engine is broken"));
        if (draining_) return answer(response, ApiError(503, "the server is shutting down"));
        response.set_content("{\"status\":\"ok\"}", json_type);
    }
};

void Server::check(const ServerConfig& config) {
    const std::size_t streams = config.page ? PageRoutes::most_streams : 0;
    if (config.connections.count <= config.max_answers + streams)
        throw std::runtime_error("--max-connections: not more than --max-answers" +
                                 (streams > 0 ? ", and " + std::to_string(streams) +
                                                    " for --page" : std::string()));
    if (config.page && !is_loopback(config.host))
        throw std::runtime_error("--page: it shows everybody's prompts, so only with a --host that "
                                 "is this machine alone, not " + config.host);
}

Server::Server(const ServerConfig& config, Engine& engine)
    : config_(config), engine_(engine), routes_(std::make_unique<Routes>(config_, engine)) {
    check(config);
    httplib::Server& http = routes_->http();
    port_ = config.port;
    const bool bound = config.port == 0 ? (port_ = http.bind_to_any_port(config.host)) > 0
                                        : http.bind_to_port(config.host, config.port);
    if (!bound)
        throw std::runtime_error("cannot listen on " + config.host + ":" +
                                 std::to_string(config.port));
    routes_->widen_backlog();
}

Server::~Server() = default;

bool Server::run() {
    const bool ended_well = routes_->http().listen_after_bind();
    ended_ = true;
    return ended_well;
}

void Server::shutdown() {
    routes_->drain();
    const auto end = std::chrono::steady_clock::now() + config_.drain;
    engine_.wait_idle(config_.drain);
    // A request that was being read is none of the engine's yet.
    while (!routes_->idle() && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(10ms);
    engine_.cancel_all();
    // What was cancelled still has to be told to its client; stop() would cut it off. A client that
    // takes its time over an answer has had its time.
    const auto patience =
        std::chrono::steady_clock::now() + std::min(config_.drain, config_.tell);
    while (!routes_->idle() && std::chrono::steady_clock::now() < patience) {
        std::this_thread::sleep_for(10ms);
        engine_.cancel_all();  // one that was read until now
    }
    // stop() has no effect on a server that is about to listen.
    while (!routes_->http().is_running() && !ended_) std::this_thread::sleep_for(1ms);
    routes_->http().stop();
}

}  // namespace engine
