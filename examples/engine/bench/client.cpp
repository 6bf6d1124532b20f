#include "bench/client.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace engine {

namespace {

class Recorder final : public Listener {
public:
    explicit Recorder(Client::Done done) : done_(std::move(done)) {}

    void on_token(const TokenOutput& token) override {
        record_.token_times.push_back(Clock::now());
        record_.tokens.push_back(token.id);
    }
    void on_finish(const RequestResult& result) override {
        record_.prompt_tokens = result.prompt_tokens;
        record_.cached_tokens = result.cached_tokens;
        record_.error = result.error;
        if (result.finish == Finish::cancelled) record_.error = "cancelled";
        done_(std::move(record_));
    }

private:
    Client::Done done_;
    BenchRecord record_;
};

/// Takes server-sent events apart, however the network cut them.
class EventReader {
public:
    explicit EventReader(BenchRecord& record) : record_(record) {}

    void push(const char* data, std::size_t size) {
        pending_.append(data, size);
        for (std::size_t end; (end = pending_.find("\n\n")) != std::string::npos;) {
            event(pending_.substr(0, end));
            pending_.erase(0, end + 2);
        }
    }
    [[nodiscard]] bool complete() const { return complete_; }

private:
    BenchRecord& record_;
    std::string pending_;
    bool complete_ = false;

    void event(const std::string& text) {
        constexpr std::size_t prefix = 6;  // "data: "
        if (text.size() < prefix) return;
        if (text.compare(prefix, std::string::npos, "[DONE]") == 0) {
            complete_ = true;
            return;
        }
        const auto json = nlohmann::json::parse(text.substr(prefix));
        if (json.contains("error")) record_.error = json["error"]["message"].get<std::string>();
        if (json.contains("usage")) {
            const auto& usage = json["usage"];
            record_.prompt_tokens = usage["prompt_tokens"].get<std::size_t>();
            record_.cached_tokens =
                usage["prompt_tokens_details"]["cached_tokens"].get<std::size_t>();
        }
        if (!json.contains("choices") || json["choices"].empty()) return;
        for (const auto& id : json["choices"][0]["token_ids"]) {
            record_.tokens.push_back(id.get<std::uint32_t>());
            record_.token_times.push_back(Clock::now());
        }
    }
};

std::string body_of(const BenchRequest& request) {
    return nlohmann::json{{"prompt", request.prompt},
                          {"max_tokens", request.output},
                          {"temperature", 0},
                          {"ignore_eos", true},
                          {"stream", true},
                          {"stream_options", {{"include_usage", true}}},
                          {"return_token_ids", true}}
        .dump();
}

BenchRecord post(const std::string& url, const std::string& body) {
    BenchRecord record;
    EventReader events(record);
    httplib::Client client(url);
    client.set_tcp_nodelay(true);
    client.set_read_timeout(std::chrono::minutes(10));
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.set_header("Content-Type", "application/json");
    request.body = body;
    request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t,
                                   std::uint64_t) {
        events.push(data, size);
        return true;
    };
    try {
        const httplib::Result result = client.send(request);
        if (!result)
            record.error = "no answer: " + httplib::to_string(result.error());
        else if (result->status != 200)
            record.error = "status " + std::to_string(result->status);
        else if (!events.complete() && record.error.empty())
            record.error = "the stream ended early";
    } catch (const std::exception& error) {
        record.error = error.what();
    }
    return record;
}

}  // namespace

void DirectClient::start(const BenchRequest& request, Done done) {
    RequestSpec spec;
    spec.prompt = request.prompt;
    spec.max_tokens = request.output;
    spec.ignore_eos = true;
    engine_.submit(std::move(spec), std::make_shared<Recorder>(std::move(done)));
}

HttpClient::~HttpClient() {
    for (std::thread& thread : threads_) thread.join();
}

void HttpClient::start(const BenchRequest& request, Done done) {
    threads_.emplace_back([url = url_, body = body_of(request), done = std::move(done)] {
        done(post(url, body));
    });
}

}  // namespace engine
