// B11: the server and clients that are many, that leave, that talk nonsense, and that only look.
#include "server_fixture.hpp"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <map>
#include <new>
#include <sstream>

namespace {

/// The allocation that takes it to zero fails; those of the test itself don't count.
std::atomic<std::int64_t> allocations_left{std::numeric_limits<std::int64_t>::max()};
thread_local bool is_test = false;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
    if (!is_test && --allocations_left == 0) throw std::bad_alloc();
    if (void* made = std::malloc(size > 0 ? size : 1)) return made;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* made) noexcept { std::free(made); }
[[gnu::noinline]] void operator delete(void* made, std::size_t) noexcept { std::free(made); }

using namespace test;

static const std::string content_length = "Content-Length: ";

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
    CHECK_EQ(http(running.port(), "GET", "/v1/completions").status, 405);
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

/// Also when something of his lies there that nobody has read.
static void b11_hanging_up_behind_more_bytes_cancels_the_request() {
    Running running([](engine::EngineConfig& config) {
        config.before_forward = [](std::size_t) { std::this_thread::sleep_for(2ms); };
    });
    const Json endless = with(request("never mind", 2000), "ignore_eos", true);
    Socket client(running.port());
    CHECK(client.send(http_text("POST", "/v1/completions", endless.dump())));
    CHECK(eventually([&] { return running.metrics().running == 1; }));
    CHECK(client.send("P"));
    client.hang_up();
    CHECK(eventually([&] { return running.metrics().running == 0; }));
    CHECK_EQ(running.metrics().finished_cancelled.load(), 1U);
    running.audit_idle();
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

/// A connection for which there is no memory ends; whoever comes next is answered.
static void b06_no_memory_for_a_connection_ends_no_other() {
    Running running;
    is_test = true;
    CHECK_EQ(http(running.port(), "GET", "/health").status, 200);
    for (std::int64_t at = 1; at <= 80; ++at) {
        allocations_left = at;
        const Socket socket(running.port());
        // So that its thread waits for the head.
        std::this_thread::sleep_for(1ms);
        (void)socket.send(http_text("GET", "/health", ""));
        (void)socket.read_all();
        allocations_left = std::numeric_limits<std::int64_t>::max();
        CHECK_EQ(http(running.port(), "GET", "/health").status, 200);
    }
    is_test = false;
    CHECK_EQ(post(running.port(), request("still there", 2)).status, 200);
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
    CHECK(samples["engine_work_seconds_total{work=\"products\"}"] > 0);
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

static void b11_a_port_in_use_is_refused() {
    Running running;
    engine::ServerConfig config;
    config.port = running.port();
    CHECK_REFUSES(std::runtime_error, "cannot listen on 127.0.0.1:",
                  engine::Server(config, running.engine()));
    CHECK_EQ(http(running.port(), "GET", "/health").status, 200);
}

/// What runs is finished, what comes is refused, and then the server is gone.
static void b11_shutdown_finishes_what_runs() {
    // It stands still until others were refused.
    std::atomic<bool> goes_on{false};
    std::atomic<int> steps{0};
    Running running([&](engine::EngineConfig& config) {
        config.before_forward = [&](std::size_t) {
            if (++steps <= 5) return;
            while (!goes_on) std::this_thread::sleep_for(1ms);
        };
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
    goes_on = true;
    text += socket.read_all();
    CHECK_EQ(events_of(parse_response(text)).size(), 101U);
    closing.join();
    running.audit_idle();
}

/// One that is being read when the server is told to end is refused, finished or cancelled, never
// cut.
static void b11_shutdown_cuts_no_request_that_was_being_read() {
    for (int wait = 0; wait < 20; ++wait) {
        Running running(
            [](engine::EngineConfig& config) {
                config.before_forward = [](std::size_t) { std::this_thread::sleep_for(20ms); };
            },
            64,
            [](engine::ServerConfig& config) {
                config.drain = 500ms;
                config.connections.body_bytes = 8U << 20;
            });
        Json body = with(request("go on", 100), "stream", true);
        body["ignore_eos"] = true;
        body["user"] = std::string(7U << 20, 'x');  // takes a while to parse
        const Socket socket(running.port());
        std::string text;
        std::thread client([&] {
            if (socket.send(http_text("POST", "/v1/completions", body.dump())))
                text = socket.read_all();
        });
        std::this_thread::sleep_for(wait * 2ms);
        running.shutdown();
        client.join();
        // Nothing at all: it was not read yet, and its connection was closed.
        const bool is_told = text.find("data: [DONE]") != std::string::npos ||
                             text.find("\"error\"") != std::string::npos;
        CHECK(text.empty() || is_told);
        running.audit_idle();
    }
}

/// For `then`, which gets the server, the client and what he has read: more than a socket takes by
/// itself is on its way to a client that reads nothing more than the head.
static void while_a_ready_answer_is_written(
    const std::function<void(engine::ServerConfig&)>& change,
    const std::function<void(Running&, const Socket&, std::string&)>& then) {
    // Where the machine is busy an answer may take too long to go out in one piece.
    for (int attempt = 0; attempt < 20; ++attempt) {
        Running running(
            [](engine::EngineConfig& config) {
                config.scheduler.max_running = 128;
                config.kv.page_count = 2048;
            },
            64, change);
        Json body = with(request("a large answer", 110), "logprobs", 20);
        body["ignore_eos"] = true;
        body["temperature"] = 1;
        body["n"] = 64;
        const Socket socket(running.port(), 4096);
        CHECK(socket.send(http_text("POST", "/v1/completions", body.dump())));
        std::string text;
        CHECK(socket.read_until("\r\n\r\n", text));
        if (text.find(content_length) == std::string::npos) continue;
        then(running, socket, text);
        running.audit_idle();
        return;
    }
    fail(__FILE__, __LINE__, "no answer was ready at once");
}

/// All of an answer whose head has a length.
static void check_is_whole(const std::string& text) {
    const Response response = parse_response(text);
    const std::size_t at = response.head.find(content_length);
    const char* length = response.head.c_str() + at + content_length.size();
    CHECK_EQ(response.status, 200);
    CHECK_EQ(response.body.size(), std::strtoul(length, nullptr, 10));
    // Less would lie in a socket's buffer.
    CHECK(response.body.size() > 3000000U);
}

/// Nor is one cut whose answer was ready at once, and is still on its way to a client that reads
/// slowly.
static void b11_shutdown_cuts_no_answer_that_is_being_written() {
    while_a_ready_answer_is_written({}, [](Running& running, const Socket& client,
                                           std::string& text) {
        std::thread closing([&] { running.shutdown(); });
        std::this_thread::sleep_for(200ms);
        text += client.read_all();
        closing.join();
        check_is_whole(text);
    });
}

/// A client who takes his time over it keeps nobody else from an answer.
static void b11_an_answer_that_is_ready_takes_nobodys_place() {
    const auto one = [](engine::ServerConfig& config) { config.max_answers = 1; };
    while_a_ready_answer_is_written(one, [](Running& running, const Socket& client,
                                            std::string& text) {
        CHECK_EQ(post(running.port(), request("and another one", 2)).status, 200);
        text += client.read_all();
        check_is_whole(text);
    });
}

/// Nor does one who reads nothing keep a server from its end for longer than it lets requests go
/// on.
static void b11_shutdown_waits_a_moment_for_what_was_cancelled() {
    const auto short_tell = [](engine::ServerConfig& config) {
        config.drain = 3s;
        config.tell = 100ms;
    };
    while_a_ready_answer_is_written(short_tell, [](Running& running, const Socket&,
                                                   std::string&) {
        const auto begin = std::chrono::steady_clock::now();
        running.shutdown();
        const auto took = std::chrono::steady_clock::now() - begin;
        CHECK(took >= 3s && took < 5s);
    });
}

/// Rates are differences of sums, and those grow for weeks.
static void b11_sums_keep_their_digits() {
    engine::Histogram times;
    times.observe(12345678);
    times.observe(0.25);
    std::string text;
    times.write("x", text);
    CHECK(text.find("\nx_sum 12345678.25") != std::string::npos);
    CHECK(text.find("x_bucket{le=\"0.25\"} 1\n") != std::string::npos);
}

int main() {
    RUN(b11_what_is_no_request_is_refused);
    RUN(b11_hanging_up_cancels_the_request);
    RUN(b11_hanging_up_behind_more_bytes_cancels_the_request);
    RUN(b11_many_clients_at_once);
    RUN(b11_overload_is_told_to_the_client);
    RUN(b06_failures_of_the_engine_reach_the_client);
    RUN(b06_no_memory_for_a_connection_ends_no_other);
    RUN(b11_metrics_can_be_parsed_and_add_up);
    RUN(b11_a_port_in_use_is_refused);
    RUN(b11_shutdown_finishes_what_runs);
    RUN(b11_shutdown_cuts_no_request_that_was_being_read);
    RUN(b11_shutdown_cuts_no_answer_that_is_being_written);
    RUN(b11_an_answer_that_is_ready_takes_nobodys_place);
    RUN(b11_shutdown_waits_a_moment_for_what_was_cancelled);
    RUN(b11_sums_keep_their_digits);
    return 0;
}
