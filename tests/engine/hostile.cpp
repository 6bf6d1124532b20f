// B11, B06: clients that mean ill. Whatever one of them sends, keeps back or drops, the others are
// answered, and no page is lost.
#include "server_fixture.hpp"

#include <sys/resource.h>

#include <atomic>
#include <deque>

using namespace test;

namespace {

using Change = std::function<void(engine::ServerConfig&)>;

struct Hosting : Running {
    explicit Hosting(const Change& change) : Running({}, 1024, change) {}
};

/// An answer to something that is sent as it is.
Response answer_to(int port, const std::string& bytes) {
    const Socket socket(port);
    (void)socket.send(bytes);
    return parse_response(socket.read_all());
}

std::string reason_of(const Response& response) {
    return response.json()["error"]["message"].get<std::string>();
}

const std::string post_line = "POST /v1/completions HTTP/1.1\r\nHost: test\r\n";

std::string nested(std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

/// The server is as it was.
void serves(Running& running) {
    CHECK_EQ(http(running.port(), "GET", "/health").status, 200);
    CHECK_EQ(post(running.port(), request("still there", 2)).status, 200);
}

}  // namespace

static void b11_brackets_cannot_overflow_the_stack() {
    Hosting running([](auto& config) { config.connections.body_bytes = 1 << 20; });
    const auto refused = [&](const char* path, const std::string& field, const std::string& value) {
        const std::string body = "{\"" + field + "\":" + value + "}";
        const Response response = http(running.port(), "POST", path, body);
        CHECK_EQ(response.status, 400);
        CHECK(reason_of(response).find("JSON nested deeper than 64") != std::string::npos);
    };
    for (const char* field : {"stop", "prompt", "model", "logit_bias", "seed", "unknown"})
        refused("/v1/completions", field, nested(60000));
    for (const char* field : {"stop", "messages", "response_format"})
        refused("/v1/chat/completions", field, nested(60000));
    std::string objects;
    for (int i = 0; i < 60000; ++i) objects += "{\"a\":";
    refused("/v1/completions", "stop", objects + "1" + std::string(60000, '}'));
    // What is deep, but not too deep, is what it always was.
    const Json good = request("x", 1);
    CHECK_EQ(post(running.port(), with(good, "unknown", Json::parse(nested(60)))).status, 200);
    CHECK_EQ(post(running.port(), with(good, "stop", Json::parse(nested(60)))).status, 400);
    serves(running);
    running.audit_idle();
}

static void b11_sizes_are_limited() {
    Hosting running([](auto& config) { config.connections.idle = 300ms; });
    const int port = running.port();
    // A body without an end, in chunks: as data, and as what only says how long a chunk is.
    const std::string chunk = "1000\r\n" + std::string(4096, ' ') + "\r\n";
    for (const std::string& piece : {chunk, std::string(4096, '0')}) {
        const Socket socket(port);
        CHECK(socket.send(post_line + "Transfer-Encoding: chunked\r\n\r\n"));
        std::size_t sent = 0;
        while (sent < (std::size_t{64} << 20) && socket.send(piece)) sent += piece.size();
        // Cut long before.
        CHECK(sent < std::size_t{64} << 20);
    }
    std::string chunks;
    for (int i = 0; i < 25; ++i) chunks += chunk;
    const Response too_long =
        answer_to(port, post_line + "Transfer-Encoding: chunked\r\n\r\n" + chunks);
    CHECK_EQ(too_long.status, 413);
    CHECK_EQ(reason_of(too_long), "the body is too long");
    CHECK_EQ(answer_to(port, post_line + "Content-Length: 100001\r\n\r\n").status, 413);
    // In chunks, but not too long.
    const std::string body = request("in chunks", 1).dump();
    char size[16];
    std::snprintf(size, sizeof size, "%zx", body.size());
    CHECK_EQ(answer_to(port, post_line + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" +
                                 size + "\r\n" + body + "\r\n0\r\n\r\n")
                 .status,
             200);

    // Header fields, many or one; a line that never ends; a path.
    std::string fields;
    for (int i = 0; i < 50; ++i) fields += "X-" + std::to_string(i) + ": " +
                                           std::string(8000, 'x') + "\r\n";
    CHECK_EQ(answer_to(port, "GET /health HTTP/1.1\r\n" + fields + "\r\n").status, 431);
    CHECK_EQ(answer_to(port, "GET /health HTTP/1.1\r\nX: " + std::string(100000, 'x')).status, 431);
    CHECK_EQ(answer_to(port, std::string(100000, 'x')).status, 431);
    const std::string long_path(8000, 'x');
    CHECK_EQ(http(port, "DELETE", "/v1/completions/" + long_path).status, 404);
    CHECK_EQ(http(port, "GET", "/v1/models/" + long_path).status, 404);
    CHECK_EQ(http(port, "GET", "/" + std::string(30000, 'x')).status, 414);
    // Many ranges of an answer.
    std::string ranges = "0-0";
    for (int i = 0; i < 1900; ++i) ranges += ",0-0";
    CHECK(answer_to(port, "GET /metrics HTTP/1.1\r\nConnection: close\r\nRange: bytes=" + ranges +
                              "\r\n\r\n")
              .body.size() < 100000);
    // A few bytes that would unpack to many.
    CHECK_EQ(answer_to(port, post_line + "Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n")
                 .status,
             415);
    // Nor may it come without a length, up to the end of the connection: that was unpacked.
    for (const char* field : {"Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n", ""})
        CHECK_EQ(answer_to(port, post_line + field + "\r\n").status, 411);

    // A salt is a name: who retains keeps it.
    Json salted = with(request("x", 1), "retain", true);
    salted["cache_salt"] = std::string(256, 's');
    CHECK_EQ(post(port, salted).status, 200);
    salted["cache_salt"] = std::string(257, 's');
    const Response refused = post(port, salted);
    CHECK_EQ(refused.status, 400);
    CHECK_EQ(refused.json()["error"]["param"], "cache_salt");
    CHECK_EQ(reason_of(refused), "cache_salt: longer than 256 bytes");
    serves(running);
}

static void b11_what_is_ambiguous_is_refused() {
    Running running;
    const int port = running.port();
    const std::string body = request("x", 1).dump();
    const std::string right = "Content-Length: " + std::to_string(body.size()) + "\r\n";
    for (const std::string& fields :
         {std::string("Content-Length: -1\r\n"), std::string("Content-Length: +5\r\n"),
          std::string("Content-Length: 0x10\r\n"), std::string("Content-Length: 5, 5\r\n"),
          std::string("Content-Length: 99999999999999999999999\r\n"), right + right,
          right + "Transfer-Encoding: chunked\r\n", std::string("Transfer-Encoding: gzip\r\n"),
          std::string("Transfer-Encoding: chunked, chunked\r\n")}) {
        const Response response = answer_to(port, post_line + fields + "\r\n" + body);
        if (response.status != 400) fail(__FILE__, __LINE__, "not refused: " + fields);
        CHECK(reason_of(response).find(fields.substr(0, 8)) == 0);
    }
    // Without a length some take what follows for the body, and some for the next request.
    CHECK_EQ(answer_to(port, post_line + "\r\n" + body).status, 411);
    CHECK_EQ(http(port, "GET", "/health", "a body").status, 400);
    for (const auto& [method, path, allowed] :
         {std::tuple("GET", "/v1/completions", "POST"), {"PUT", "/v1/chat/completions", "POST"},
          {"POST", "/health", "GET"}, {"DELETE", "/metrics", "GET"}, {"PATCH", "/v1/models", "GET"},
          {"OPTIONS", "/v1/models/tiny", "GET"}, {"GET", "/v1/completions/cmpl-1", "DELETE"}}) {
        const Response response = http(port, method, path);
        CHECK_EQ(response.status, 405);
        CHECK(response.head.find("Allow: " + std::string(allowed)) != std::string::npos);
        CHECK_EQ(reason_of(response), "there is only " + std::string(allowed) + " " + path);
    }
    for (const char* number : {"1e999", "-1e999", "123456789e400"})
        for (const char* field : {"temperature", "seed", "max_tokens", "prompt", "unknown"}) {
            const std::string text =
                "{\"prompt\":\"x\",\"" + std::string(field) + "\":" + number + "}";
            CHECK_EQ(http(port, "POST", "/v1/completions", text).status, 400);
        }
    serves(running);
    running.audit_idle();
}

/// A client that is slow is answered so, however often it sends a byte.
static void b11_slow_clients_are_told() {
    Hosting running([](auto& config) {
        config.connections.idle = 300ms;
        config.connections.head = 300ms;
        config.connections.body = 300ms;
    });
    // Each begins like this, and goes on with blanks for a minute.
    for (const auto& [beginning, reason] :
         {std::pair(std::string("GET /health HTTP/1.1\r\nX: "), "the head"),
          {post_line + "Content-Length: 90000\r\n\r\n{", "the body"},
          {post_line + "Transfer-Encoding: chunked\r\n\r\n", "the body"}}) {
        const Socket socket(running.port());
        CHECK(socket.send(beginning));
        const bool in_chunks = beginning.find("chunked") != std::string::npos;
        std::atomic<bool> answered{false};
        std::thread drip([&] {
            for (int i = 0; i < 1200 && !answered; ++i) {
                if (!socket.send(in_chunks ? "1\r\n \r\n" : " ")) return;
                std::this_thread::sleep_for(50ms);
            }
        });
        std::string text;
        CHECK(socket.read_until("in time", text));
        answered = true;
        drip.join();
        CHECK(text.find("HTTP/1.1 408") == 0);
        CHECK(text.find(reason + std::string(" did not come in time")) != std::string::npos);
    }
    // Who says nothing at all is not answered either.
    CHECK_EQ(Socket(running.port()).read_all(), "");
    serves(running);
    running.audit_idle();
}

/// Ten times as many connections as the server has places for, of each kind that keeps it waiting,
/// with deadlines that none of them reaches: whoever sends a request is served all the same.
static void b11_slow_clients_keep_nobody_out() {
    for (const std::string& beginning :
         {std::string(), std::string("GET /health HTTP/1.1\r\nX: "),
          post_line + "Content-Length: 90000\r\n\r\n{",
          post_line + "Transfer-Encoding: chunked\r\n\r\n",
          std::string("GET /health HTTP/1.1\r\n\r\n")}) {
        Hosting running([](auto& config) {
            config.connections.count = 24;
            config.max_answers = 8;
            config.connections.idle = config.connections.head = config.connections.body = 1h;
        });
        std::deque<Socket> slow;
        for (int i = 0; i < 240; ++i) {
            slow.emplace_back(running.port());
            CHECK(slow.back().send(beginning));
            if (i % 40 == 0) serves(running);
        }
        serves(running);
        // The first was cut.
        CHECK(eventually([&] { return !slow.front().send("x"); }));
        running.audit_idle();
    }
}

/// Answers have a limit of their own, below that of connections; slow clients don't end them, and
/// they don't keep away who only asks.
static void b11_answers_are_neither_cut_nor_in_the_way() {
    std::atomic<bool> goes_on{false};
    Running running(
        [&](engine::EngineConfig& config) {
            config.before_forward = [&](std::size_t) {
                while (!goes_on) std::this_thread::sleep_for(1ms);
            };
        },
        64,
        [](engine::ServerConfig& config) {
            config.connections.count = 24;
            config.max_answers = 8;
        });
    const Json stream = with(with(request("x", 5), "stream", true), "ignore_eos", true);
    std::deque<Socket> streams, idle;
    for (int i = 0; i < 8; ++i) {
        streams.emplace_back(running.port());
        CHECK(streams.back().send(http_text("POST", "/v1/completions", stream.dump())));
        std::string head;
        CHECK(streams.back().read_until("\r\n\r\n", head));
    }
    for (int i = 0; i < 100; ++i) idle.emplace_back(running.port());
    const Response refused = post(running.port(), stream);
    CHECK_EQ(refused.status, 503);
    CHECK_EQ(reason_of(refused), "too many requests are being answered: 8");
    CHECK(refused.head.find("Retry-After: 1") != std::string::npos);
    CHECK_EQ(http(running.port(), "GET", "/health").status, 200);
    CHECK_EQ(http(running.port(), "GET", "/metrics").status, 200);
    goes_on = true;
    for (const Socket& socket : streams)
        CHECK(socket.read_all().find("data: [DONE]") != std::string::npos);
    serves(running);
    running.audit_idle();
}

/// A client that asks for much and takes nothing of it loses it.
static void b11_who_takes_nothing_is_cut() {
    Hosting running([](auto& config) { config.connections.write = 200ms; });
    const Socket socket(running.port());
    // As many answers as no buffer holds.
    std::string asked;
    for (int i = 0; i < 1000; ++i) asked += "GET /metrics HTTP/1.1\r\n\r\n";
    bool is_cut = false;
    for (int i = 0; i < 200 && !is_cut; ++i) {
        is_cut = !socket.send(asked);
        if (i > 3) std::this_thread::sleep_for(50ms);
    }
    CHECK(is_cut);
    serves(running);
}

/// A client that always has another request gives its place back.
static void b11_requests_of_a_connection_are_counted() {
    Running running;
    const Socket socket(running.port());
    std::string asked;
    for (int i = 0; i < 300; ++i) asked += "GET /health HTTP/1.1\r\n\r\n";
    CHECK(socket.send(asked));
    const std::string text = socket.read_all();
    std::size_t answers = 0, closes = 0;
    for (std::size_t at = 0; (at = text.find("HTTP/1.1 200", at)) != std::string::npos; ++at)
        ++answers;
    for (std::size_t at = 0; (at = text.find("Connection: close", at)) != std::string::npos; ++at)
        ++closes;
    CHECK_EQ(answers, 100U);
    CHECK_EQ(closes, 1U);
}

/// B06: half of 500 streams hang up in the middle; the others end, and every page comes back.
static void b06_five_hundred_streams_and_hang_ups() {
    Running running(
        [](engine::EngineConfig& config) {
            config.kv.page_count = 64;
            config.scheduler.max_running = 16;
        },
        1024);
    const int port = running.port();
    Json body = with(with(request("", 12), "stream", true), "ignore_eos", true);
    std::deque<Socket> streams;
    for (int i = 0; i < 500; ++i) {
        body["prompt"] = "stream " + std::to_string(i % 50);
        // Too long to end before its client hangs up.
        body["max_tokens"] = i % 2 == 0 ? 200 : 12;
        streams.emplace_back(port);
        CHECK(streams.back().send(http_text("POST", "/v1/completions", body.dump())));
        // Some before there is an answer, the others after the head or the first token.
        if (i % 6 == 0) streams.back().hang_up();
    }
    std::vector<std::thread> readers;
    std::atomic<std::size_t> whole{0};
    for (std::size_t r = 0; r < 10; ++r)
        readers.emplace_back([&, r] {
            for (std::size_t i = r; i < streams.size(); i += 10) {
                std::string text;
                if (i % 2 == 0) {
                    if (i % 6 != 0) streams[i].read_until(i % 4 == 0 ? "data: " : "\r\n", text);
                    streams[i].hang_up();
                } else if (streams[i].read_until("data: [DONE]", text)) {
                    ++whole;
                }
            }
        });
    for (std::thread& reader : readers) reader.join();
    CHECK_EQ(whole.load(), 250U);
    CHECK(eventually([&] {
        const engine::Metrics& metrics = running.metrics();
        return metrics.running == 0 && metrics.waiting == 0;
    }));
    CHECK(running.metrics().finished_cancelled > 0);
    serves(running);
    running.audit_idle();
    const std::string metrics = http(port, "GET", "/metrics").body;
    CHECK(metrics.find("engine_kv_pages{state=\"private\"} 0\n") != std::string::npos);
}

/// Where nobody knows where a request ends, nothing that is behind its head is another one.
static void b11_no_body_is_taken_for_a_request() {
    Hosting running([](auto& config) { config.connections.idle = 300ms; });
    const std::string hidden = "GET /health HTTP/1.1\r\nHost: test\r\n\r\n";
    const std::string length = "Content-Length: " + std::to_string(hidden.size()) + "\r\n\r\n";
    const std::string in_chunks = post_line + "Transfer-Encoding: chunked\r\n\r\n";
    for (const std::string& beginning :
         {// The library answers by itself, without a look at the body.
          post_line + "Range: x\r\n" + length,
          "POST /" + std::string(9000, 'x') + " HTTP/1.1\r\nHost: test\r\n" + length,
          // A chunk that is longer than it says, and a field behind the last one.
          in_chunks + "5\r\nhelloXX\r\n", in_chunks + "0\r\nX: y\r\n\r\n"}) {
        const Socket socket(running.port());
        CHECK(socket.send(beginning + hidden));
        const std::string text = socket.read_all();
        CHECK_EQ(text.find("HTTP/1.1 4"), 0U);
        CHECK_EQ(text.find("HTTP/1.1", 1), std::string::npos);
    }
    // What has a length and is read keeps its connection.
    const Socket socket(running.port());
    const std::string body = request("x", 1).dump();
    for (int i = 0; i < 2; ++i) {
        CHECK(socket.send(post_line + "Content-Length: " + std::to_string(body.size()) +
                          "\r\n\r\n" + body));
        std::string text;
        CHECK(socket.read_until("first_token_seconds", text));
    }
    serves(running);
    running.audit_idle();
}

/// Where many are connected, sockets have numbers that select() does not take.
static void b11_a_socket_may_have_a_high_number() {
    rlimit files{};
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    if (files.rlim_cur < 1200) return;
    Running running;
    std::vector<int> taken;
    while (taken.empty() || taken.back() < 1100) {
        taken.push_back(socket(AF_INET, SOCK_STREAM, 0));
        CHECK(taken.back() >= 0);
    }
    // The first socket has the number that accept() waits with, the second a high one.
    serves(running);
    for (const int file : taken) close(file);
}

int main() {
    // Both ends of each connection are here.
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    RUN(b11_brackets_cannot_overflow_the_stack);
    RUN(b11_sizes_are_limited);
    RUN(b11_what_is_ambiguous_is_refused);
    RUN(b11_no_body_is_taken_for_a_request);
    RUN(b11_slow_clients_are_told);
    RUN(b11_slow_clients_keep_nobody_out);
    RUN(b11_answers_are_neither_cut_nor_in_the_way);
    RUN(b11_who_takes_nothing_is_cut);
    RUN(b11_requests_of_a_connection_are_counted);
    RUN(b11_a_socket_may_have_a_high_number);
    RUN(b06_five_hundred_streams_and_hang_ups);
    return 0;
}
