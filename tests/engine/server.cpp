// B11: the server over real sockets: what clients send right, what they send wrong, and when they
// leave.
#include "fixture.hpp"
#include "http/server.hpp"
#include "http_client.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

using namespace test;
using Json = nlohmann::json;
using namespace std::chrono_literals;

namespace {

const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

/// A server with its engine, on a port of its own.
class Running {
public:
    explicit Running(std::function<void(engine::EngineConfig&)> change = {},
                     std::size_t max_waiting = 64)
        : engine_(engine_config(change), max_waiting),
          server_(server_config(), engine_),
          thread_([this] { server_.run(); }) {}
    ~Running() {
        if (thread_.joinable()) shutdown();
    }
    void shutdown() {
        server_.shutdown();
        thread_.join();
    }
    [[nodiscard]] int port() const { return server_.port(); }
    engine::Engine& engine() { return engine_; }
    engine::Server& server() { return server_; }
    [[nodiscard]] const engine::Metrics& metrics() const { return engine_.core().metrics(); }

    /// Nothing runs, and no page is lost.
    void audit_idle() {
        CHECK(engine_.wait_idle(20s));
        const engine::Kv& kv = engine_.core().kv();
        audit(kv.table(), kv.cache());
        CHECK_EQ(kv.table().stats().private_page_count, 0U);
        CHECK_EQ(kv.cache().stats().sequence_count, 0U);
        CHECK_EQ(kv.table().stats().reclaimable_page_count,
                 kv.table().stats().cached_page_count);
    }

private:
    static engine::EngineConfig engine_config(
        const std::function<void(engine::EngineConfig&)>& change) {
        engine::EngineConfig config = tiny_config(model());
        if (change) change(config);
        return config;
    }
    static engine::ServerConfig server_config() {
        engine::ServerConfig config;
        config.port = 0;
        config.served_model = "tiny";
        config.max_body_bytes = 100000;
        config.thread_count = 32;
        config.drain = 10s;
        return config;
    }
    engine::Engine engine_;
    engine::Server server_;
    std::thread thread_;
};

Json request(const std::string& prompt, std::size_t max_tokens) {
    return {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
}

Json with(Json request, const std::string& field, Json value) {
    request[field] = std::move(value);
    return request;
}

bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
        if (condition()) return true;
        std::this_thread::sleep_for(10ms);
    }
    return false;
}

const Json& choice_of(const Json& body) { return body["choices"][0]; }

}  // namespace

static void b11_a_completion_is_what_the_engine_generates() {
    Running running;
    TestCore core(tiny_config(model()));
    const std::string prompt = "Tell me about pages";
    const auto expected =
        core.complete(greedy(joined({engine::bos_id}, engine::encode(prompt)), 12));
    const Response response =
        post(running.port(), with(request(prompt, 12), "return_token_ids", true));
    CHECK_EQ(response.status, 200);
    const Json body = response.json();
    CHECK_EQ(body["object"], "text_completion");
    CHECK_EQ(body["model"], "tiny");
    CHECK_EQ(choice_of(body)["text"], expected->text);
    CHECK_EQ(choice_of(body)["finish_reason"], "length");
    CHECK_EQ(choice_of(body)["token_ids"], Json(expected->tokens));
    CHECK_EQ(body["usage"]["prompt_tokens"], 20);
    CHECK_EQ(body["usage"]["completion_tokens"], 12);
    CHECK_EQ(body["usage"]["total_tokens"], 32);
    CHECK_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    const Json again = post(running.port(), request(prompt, 12)).json();
    CHECK_EQ(choice_of(again)["text"], expected->text);
    // 31 positions were computed: one whole page.
    CHECK_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
    // Ids are taken as they are, and may stand in an array of one.
    const Json ids = joined({engine::bos_id}, engine::encode(prompt));
    for (const Json& given : {ids, Json::array({ids}), Json::array({prompt})}) {
        const Json asked = with(request("", 12), "prompt", given);
        const Json body_of_ids = post(running.port(), asked).json();
        CHECK_EQ(choice_of(body_of_ids)["text"], expected->text);
    }
    running.audit_idle();
}

static void b11_a_stream_is_the_same_in_pieces() {
    Running running;
    for (const char* prompt : {"a", "Stream this", "\xE2\x82\xAC 5"}) {
        Json asked = with(request(prompt, 30), "echo", true);
        const Json whole = post(running.port(), asked).json();
        asked["stream"] = true;
        asked["stream_options"] = {{"include_usage", true}};
        const Response response = post(running.port(), asked);
        CHECK_EQ(response.status, 200);
        CHECK(response.head.find("text/event-stream") != std::string::npos);
        const std::vector<Json> events = events_of(response);
        CHECK(events.size() >= 4);
        std::string text;
        std::set<std::string> ids;
        for (const Json& event : events) {
            ids.insert(event["id"].get<std::string>());
            for (const Json& choice : event["choices"]) text += choice["text"].get<std::string>();
        }
        CHECK_EQ(text, choice_of(whole)["text"].get<std::string>());
        CHECK_EQ(text.find(prompt), 0U);
        CHECK_EQ(ids.size(), 1U);
        CHECK_EQ(choice_of(events[events.size() - 2])["finish_reason"], "length");
        CHECK_EQ(events.back()["usage"]["completion_tokens"], 30);
        CHECK(events.back()["choices"].empty());
    }
    running.audit_idle();
}

static void b11_parameters_of_a_completion() {
    Running running;
    const Json plain = post(running.port(), request("parameters", 40)).json();
    const std::string text = choice_of(plain)["text"];
    // Where bytes are no characters, the text has others than were generated: take a plain place.
    std::size_t place = 5;
    while (static_cast<unsigned char>(text[place]) >= 0x80 ||
           static_cast<unsigned char>(text[place + 1]) >= 0x80)
        ++place;
    const std::string word = text.substr(place, 2);
    const Json stopped =
        post(running.port(), with(request("parameters", 40), "stop", {word, "never"})).json();
    CHECK_EQ(choice_of(stopped)["text"], text.substr(0, text.find(word)));
    CHECK_EQ(choice_of(stopped)["finish_reason"], "stop");

    Json drawn = request("parameters", 20);
    drawn["temperature"] = 1.2;
    drawn["top_p"] = 0.9;
    drawn["seed"] = 11;
    const Json first = post(running.port(), drawn).json();
    const Json second = post(running.port(), drawn).json();
    CHECK_EQ(choice_of(first)["text"], choice_of(second)["text"]);
    const Json other = post(running.port(), with(drawn, "seed", -12)).json();
    CHECK(choice_of(first)["text"] != choice_of(other)["text"]);

    const Json logprobs =
        choice_of(post(running.port(), with(request("parameters", 5), "logprobs", 3)).json());
    CHECK_EQ(logprobs["logprobs"]["tokens"].size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) {
        const double taken = logprobs["logprobs"]["token_logprobs"][i];
        CHECK(taken < 0 && taken > -20);
        double most = -1e9;
        for (const auto& [token, value] : logprobs["logprobs"]["top_logprobs"][i].items())
            most = std::max(most, value.get<double>());
        CHECK_EQ(taken, most);  // greedy takes the likeliest
    }

    for (const char* salt : {"one", "two"}) {
        const Json salted = with(request("parameters", 8), "cache_salt", salt);
        const auto cached = [&] {
            const Json body = post(running.port(), salted).json();
            return body["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
        };
        CHECK_EQ(cached(), 0);
        CHECK_EQ(cached(), 10);
    }
    running.audit_idle();
}

static void b11_bad_requests_get_a_reason() {
    Running running;
    const Json good = request("x", 4);
    const std::vector<std::pair<std::string, Json>> cases = {
        {"prompt", with(good, "prompt", 5)},
        {"prompt", with(good, "prompt", {{"text", "x"}})},
        {"prompt", with(good, "prompt", {"one", "two"})},
        {"prompt", with(good, "prompt", {1, -2})},
        {"prompt", with(good, "prompt", {1, 1ULL << 40})},
        {"prompt", with(good, "prompt", {1, "x"})},
        {"prompt", with(good, "prompt", nullptr)},
        {"max_tokens", with(good, "max_tokens", 0)},
        {"max_tokens", with(good, "max_tokens", -1)},
        {"max_tokens", with(good, "max_tokens", 1.5)},
        {"temperature", with(good, "temperature", -0.1)},
        {"temperature", with(good, "temperature", "hot")},
        {"top_p", with(good, "top_p", 1.1)},
        {"seed", with(good, "seed", 0.5)},
        {"stop", with(good, "stop", "")},
        {"stop", with(good, "stop", Json::array({1}))},
        {"stop", with(good, "stop", std::vector<std::string>(17, "x"))},
        {"stream", with(good, "stream", 1)},
        {"stream_options", with(good, "stream_options", true)},
        {"logprobs", with(good, "logprobs", 21)},
        {"echo", with(with(good, "echo", true), "logprobs", 1)},
        {"cache_salt", with(good, "cache_salt", "")},
        {"n", with(good, "n", 2)},
        {"best_of", with(good, "best_of", 3)},
        {"presence_penalty", with(good, "presence_penalty", 0.5)},
        {"logit_bias", with(good, "logit_bias", {{"5", 1}})},
        {"suffix", with(good, "suffix", "x")},
        {"model", with(good, "model", 7)},
    };
    for (const auto& [param, body] : cases) {
        const Response response = post(running.port(), body);
        if (response.status != 400) fail(__FILE__, __LINE__, "not refused: " + body.dump());
        CHECK_EQ(response.json()["error"]["param"], param);
        CHECK_EQ(response.json()["error"]["type"], "invalid_request_error");
        CHECK(response.json()["error"]["message"].get<std::string>().find(param) == 0);
    }
    // What only the engine knows.
    for (const Json& body : {with(good, "prompt", {1, 258}), with(good, "prompt", Json::array()),
                             request(std::string(5000, 'x'), 4), request("x", 1000000)})
        CHECK_EQ(post(running.port(), body).status, 400);
    CHECK_EQ(post(running.port(), with(good, "model", "other")).status, 404);
    CHECK_EQ(post(running.port(), with(good, "model", "tiny")).status, 200);
    CHECK_EQ(running.metrics().finished_length.load(), 1U);
    running.audit_idle();
}

static void b11_what_is_no_request_is_refused() {
    Running running;
    const auto status = [&](const std::string& body) {
        return http(running.port(), "POST", "/v1/completions", body).status;
    };
    for (const char* body : {"", "{", "[]", "5", "null", "{\"prompt\":\"x\"}}", "\xEF\xBB",
                             "{\"prompt\":\"\xFF\"}", "{\"prompt\":\"\\ud800\"}"})
        CHECK_EQ(status(body), 400);
    CHECK_EQ(status(std::string(50000, '[')), 400);
    CHECK_EQ(status("{\"prompt\":\"" + std::string(200000, 'x') + "\"}"), 413);
    CHECK_EQ(http(running.port(), "GET", "/v1/completions").status, 404);
    CHECK_EQ(http(running.port(), "GET", "/nowhere").status, 404);
    CHECK(http(running.port(), "GET", "/nowhere").json()["error"]["message"].is_string());
    // No HTTP at all, and clients that stop in the middle.
    for (const char* bytes : {"\r\n\r\n", "nonsense\r\n\r\n", "POST /v1/completions HTTP/1.1\r\n",
                              "POST /v1/completions HTTP/1.1\r\nContent-Length: 99\r\n\r\n{\"p"}) {
        const Socket socket(running.port());
        CHECK(socket.send(bytes));
    }
    CHECK_EQ(post(running.port(), request("still there", 2)).status, 200);
    running.audit_idle();
}

/// Whoever leaves takes his request along, whether it streams, computes or waits.
static void b11_hanging_up_cancels_the_request() {
    // Slow enough that there is a middle: 2000 tokens take four seconds.
    Running running([](engine::EngineConfig& config) {
        config.scheduler.max_running = 2;
        config.before_forward = [](std::size_t) { std::this_thread::sleep_for(2ms); };
    });
    const auto cancelled = [&](std::uint64_t count) {
        return eventually([&] { return running.metrics().finished_cancelled == count; });
    };
    Json endless = with(request("never mind", 2000), "ignore_eos", true);
    Socket waiting_streamed(running.port()), streamed(running.port()), whole(running.port());
    CHECK(whole.send(http_text("POST", "/v1/completions", endless.dump())));
    CHECK(eventually([&] { return running.metrics().running == 1; }));
    endless["stream"] = true;
    const std::string text = http_text("POST", "/v1/completions", endless.dump());
    CHECK(streamed.send(text));
    std::string read;
    CHECK(streamed.read_until("data: ", read));
    CHECK(waiting_streamed.send(text));
    CHECK(eventually([&] { return running.metrics().waiting == 1; }));

    waiting_streamed.hang_up();
    CHECK(cancelled(1));
    CHECK_EQ(running.metrics().running.load(), 2U);
    streamed.hang_up();
    CHECK(cancelled(2));
    whole.hang_up();
    CHECK(cancelled(3));
    running.audit_idle();
    CHECK_EQ(running.metrics().finished_length.load(), 0U);
}

static void b11_many_clients_at_once() {
    Running running([](engine::EngineConfig& config) { config.kv.page_count = 40; });
    std::vector<std::string> expected;
    for (int i = 0; i < 4; ++i) {
        const std::string prompt = "many clients, prompt " + std::to_string(i);
        expected.push_back(choice_of(post(running.port(), request(prompt, 25)).json())["text"]);
    }
    std::vector<std::thread> clients;
    std::atomic<int> wrong{0};
    for (std::size_t c = 0; c < 12; ++c) {
        clients.emplace_back([&, c] {
            for (std::size_t i = 0; i < 6; ++i) {
                const std::size_t which = (c + i) % expected.size();
                Json body = request("many clients, prompt " + std::to_string(which), 25);
                body["stream"] = (c + i) % 2 == 0;
                const Response response = post(running.port(), body);
                std::string text;
                if (body["stream"])
                    for (const Json& event : events_of(response))
                        text += choice_of(event)["text"].get<std::string>();
                else
                    text = choice_of(response.json())["text"];
                if (text != expected[which]) ++wrong;
            }
        });
    }
    for (std::thread& client : clients) client.join();
    CHECK_EQ(wrong.load(), 0);
    running.audit_idle();
}

static void b11_overload_is_told_to_the_client() {
    Running running(
        [](engine::EngineConfig& config) {
            config.scheduler.max_running = 1;
            config.before_forward = [](std::size_t) { std::this_thread::sleep_for(2ms); };
        },
        1);
    Json endless = with(request("never mind", 2000), "stream", true);
    endless["ignore_eos"] = true;
    const std::string text = http_text("POST", "/v1/completions", endless.dump());
    Socket first(running.port()), second(running.port());
    CHECK(first.send(text));
    CHECK(eventually([&] { return running.metrics().running == 1; }));
    CHECK(second.send(text));
    CHECK(eventually([&] { return running.metrics().waiting == 1; }));
    const Response refused = post(running.port(), request("one too many", 1));
    CHECK_EQ(refused.status, 503);
    CHECK(refused.head.find("Retry-After") != std::string::npos);
    CHECK_EQ(refused.json()["error"]["type"], "server_error");
}

/// An engine that fails says so, in the status where that is still open, else in the stream.
static void b06_failures_of_the_engine_reach_the_client() {
    std::atomic<bool> fails{true};
    Running running([&](engine::EngineConfig& config) {
        config.before_forward = [&](std::size_t) {
            if (fails) throw std::runtime_error("no device");
        };
    });
    const Response whole = post(running.port(), request("x", 3));
    CHECK_EQ(whole.status, 500);
    CHECK_EQ(whole.json()["error"]["message"], "no device");
    const Response stream = post(running.port(), with(request("x", 3), "stream", true));
    CHECK(stream.body.find("\"message\":\"no device\"") != std::string::npos);
    CHECK(stream.body.find("[DONE]") == std::string::npos);
    fails = false;
    CHECK_EQ(post(running.port(), request("x", 3)).status, 200);
    running.audit_idle();
}

/// Every line of /metrics is a comment or a sample; histograms only rise; the numbers add up.
static void b11_metrics_can_be_parsed_and_add_up() {
    Running running;
    for (int i = 0; i < 3; ++i) post(running.port(), request("metrics of three requests", 10));
    const Response response = http(running.port(), "GET", "/metrics");
    CHECK_EQ(response.status, 200);
    std::map<std::string, double> samples;
    std::map<std::string, std::string> types;
    std::map<std::string, double> rising;
    std::istringstream lines(response.body);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name, second, third;
        words >> name >> second >> third;
        if (name == "#") {
            if (second == "TYPE") words >> types[third];
            continue;
        }
        char* end = nullptr;
        const double value = std::strtod(second.c_str(), &end);
        CHECK(third.empty() && *end == '\0' && end != second.c_str());
        CHECK(samples.emplace(name, value).second);
        const std::string family = name.substr(0, name.find('{'));
        const std::size_t bucket = family.rfind("_bucket");
        if (bucket == std::string::npos) continue;
        CHECK_EQ(types[family.substr(0, bucket)], "histogram");
        CHECK(value >= rising[family]);
        rising[family] = value;
    }
    CHECK_EQ(samples["engine_requests_finished_total{reason=\"length\"}"], 3);
    CHECK_EQ(samples["engine_prefix_cache_hits_total"], 2);
    CHECK_EQ(samples["engine_prefix_cache_misses_total"], 1);
    CHECK_EQ(samples["engine_prompt_tokens_total"], 3 * 26);
    CHECK_EQ(samples["engine_prompt_tokens_cached_total"], 2 * 25);
    CHECK_EQ(samples["engine_generated_tokens_total"], 30);
    CHECK_EQ(samples["engine_time_to_first_token_seconds_count"], 3);
    CHECK_EQ(samples["engine_time_to_first_token_seconds_bucket{le=\"+Inf\"}"], 3);
    CHECK_EQ(samples["engine_inter_token_latency_seconds_count"], 27);
    CHECK(samples["engine_time_to_first_token_seconds_sum"] > 0);
    const auto pages = [&](const char* state) {
        return samples["engine_kv_pages{state=\"" + std::string(state) + "\"}"];
    };
    CHECK_EQ(pages("free") + pages("cached") + pages("private"), samples["engine_kv_pages_total"]);
    CHECK(pages("cached") > 0 && pages("private") == 0);
    CHECK_EQ(samples.count("engine_requests_waiting"), 1U);
    CHECK_EQ(samples.count("engine_preemptions_total"), 1U);
    CHECK_EQ(samples.count("engine_evicted_pages_total"), 1U);
    CHECK_EQ(http(running.port(), "GET", "/health").status, 200);
    CHECK_EQ(http(running.port(), "GET", "/v1/models").json()["data"][0]["id"], "tiny");
}

/// What runs is finished, what comes is refused, and then the server is gone.
static void b11_shutdown_finishes_what_runs() {
    Running running([](engine::EngineConfig& config) {
        config.before_forward = [](std::size_t) { std::this_thread::sleep_for(5ms); };
    });
    Json body = with(request("finish this", 100), "stream", true);
    body["ignore_eos"] = true;
    const Socket socket(running.port());
    CHECK(socket.send(http_text("POST", "/v1/completions", body.dump())));
    std::string text;
    CHECK(socket.read_until("data: ", text));
    std::thread closing([&] { running.shutdown(); });
    CHECK(eventually([&] { return http(running.port(), "GET", "/health").status == 503; }));
    CHECK_EQ(post(running.port(), request("too late", 1)).status, 503);
    text += socket.read_all();
    CHECK_EQ(events_of(parse_response(text)).size(), 101U);
    closing.join();
    running.audit_idle();
}

int main() {
    RUN(b11_a_completion_is_what_the_engine_generates);
    RUN(b11_a_stream_is_the_same_in_pieces);
    RUN(b11_parameters_of_a_completion);
    RUN(b11_bad_requests_get_a_reason);
    RUN(b11_what_is_no_request_is_refused);
    RUN(b11_hanging_up_cancels_the_request);
    RUN(b11_many_clients_at_once);
    RUN(b11_overload_is_told_to_the_client);
    RUN(b06_failures_of_the_engine_reach_the_client);
    RUN(b11_metrics_can_be_parsed_and_add_up);
    RUN(b11_shutdown_finishes_what_runs);
    return 0;
}
