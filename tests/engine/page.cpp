// B11: the page and its events: whom they are for, and that they tell what the cache holds.
#include "http_client.hpp"
#include "server_fixture.hpp"

#include "http/loopback.hpp"
#include "page/cache_events.hpp"

#include <algorithm>
#include <set>

using namespace test;

constexpr std::uint64_t journal_bytes = std::uint64_t{1} << 20;

static void with_journal(engine::EngineConfig& config) { config.kv.journal_bytes = journal_bytes; }
static void with_page(engine::ServerConfig& config) { config.page = true; }

/// GET, as a browser asks that was sent to `host`.
static std::string get_text(const std::string& path, const std::string& host) {
    return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
}

static Response get(int port, const std::string& path, const std::string& host) {
    const Socket socket(port);
    CHECK(socket.send(get_text(path, host)));
    return parse_response(socket.read_all());
}

/// A page, or what comes first of a stream that has no end.
static bool is_let_in(int port, const std::string& path, const std::string& host) {
    const Socket socket(port);
    CHECK(socket.send(get_text(path, host)));
    std::string text;
    CHECK(socket.read_until("\r\n\r\n", text));
    return text.compare(0, 12, "HTTP/1.1 200") == 0;
}

static std::string reason_of(const Response& response) {
    return response.json()["error"]["message"];
}

static void b11_the_page_is_off_unless_it_was_asked_for() {
    Running running(with_journal);
    for (const char* path : {"/", "/cache/events"}) {
        const Response refused = get(running.port(), path, "localhost");
        CHECK_EQ(refused.status, 404);
        CHECK_EQ(reason_of(refused), "the page is off; --page switches it on");
    }
}

static void b11_the_page_is_not_shown_to_other_machines() {
    engine::ServerConfig config;
    config.page = true;
    for (const char* host : {"0.0.0.0", "::", "192.168.0.1", "example.com", ""}) {
        config.host = host;
        CHECK_REFUSES(std::runtime_error, "--page: ", engine::Server::check(config));
    }
    for (const char* host : {"127.0.0.1", "127.8.8.8", "::1", "localhost"}) {
        config.host = host;
        engine::Server::check(config);
    }
    config.max_answers = config.connections.count - 8;
    CHECK_REFUSES(std::runtime_error, "--max-connections: ", engine::Server::check(config));
}

static void b11_a_name_that_points_here_gets_nothing() {
    Running running(with_journal, 64, with_page);
    const std::string port = ":" + std::to_string(running.port());
    for (const char* path : {"/", "/cache/events"}) {
        for (const std::string& host :
             {"127.0.0.1" + port, "localhost" + port, std::string("LOCALHOST:9"),
              std::string("[::1]:80"), std::string("127.0.0.1")})
            CHECK(is_let_in(running.port(), path, host));
        for (const std::string& host :
             {"evil.example" + port, std::string("127.0.0.1.evil.example"), std::string(""),
              std::string("localhost:80:80"), std::string("localhost:x"), std::string("[::1"),
              std::string("0.0.0.0"), std::string("localhost@evil.example")}) {
            const Response refused = get(running.port(), path, host);
            CHECK_EQ(refused.status, 403);
            CHECK_EQ(reason_of(refused).compare(0, 6, "Host: "), 0);
        }
    }
    CHECK_EQ(http(running.port(), "POST", "/", "x").status, 405);
    CHECK_EQ(http(running.port(), "POST", "/cache/events", "x").status, 405);
}

static void b11_the_page_is_one_file_that_runs_only_its_own() {
    Running running(with_journal, 64, with_page);
    const Response page = get(running.port(), "/", "localhost");
    CHECK_EQ(page.status, 200);
    CHECK(page.head.find("Content-Type: text/html; charset=utf-8") != std::string::npos);
    const std::string before = "script-src 'nonce-";
    const std::size_t at = page.head.find(before);
    CHECK(at != std::string::npos);
    const std::string nonce = page.head.substr(at + before.size(), 32);
    CHECK_EQ(nonce.find_first_not_of("0123456789abcdef"), std::string::npos);
    CHECK(page.body.find("<script type=\"module\" nonce=\"" + nonce + "\">") != std::string::npos);
    // Put together from all of its parts, and nothing is fetched from anywhere.
    CHECK_EQ(page.body.find("{{"), std::string::npos);
    for (const char* foreign : {"src=\"http", "href=\"http", "@import", "url(http", "import("})
        CHECK_EQ(page.body.find(foreign), std::string::npos);
    CHECK(get(running.port(), "/", "localhost").body.find(nonce) == std::string::npos);
}

/// What a page makes of the events.
struct Mirror {
    struct Page {
        std::uint32_t parent = 0;
        std::uint64_t position = 0;
        std::vector<std::uint32_t> tokens;
        std::string space;

        bool operator==(const Page& other) const {
            return parent == other.parent && position == other.position &&
                   tokens == other.tokens && space == other.space;
        }
    };
    std::map<std::uint32_t, Page> pages;
    /// Of each group beside the first the pages, and those that they hang on.
    std::vector<std::map<std::uint32_t, std::uint32_t>> hung;
    Json groups;
    std::map<std::uint32_t, Json> nodes;
    std::map<std::string, std::string> words;
    Json stats;
    std::size_t snapshots = 0, page_size = 0;
    bool exact = false;

    /// All that is new. Nodes are told when there is time for it, the rest at once.
    void read(engine::CacheEvents& events, const rkv::Cache& cache) {
        CHECK(eventually([&] {
            for (std::string text = events.next(); !text.empty() || !exact; text = events.next())
                apply(text);
            return nodes == nodes_of(cache);
        }));
    }
    static std::map<std::uint32_t, Json> nodes_of(const rkv::Cache& cache) {
        std::map<std::uint32_t, Json> now;
        const Json told = engine::NodeStates().changes(cache);
        if (told.is_null()) return now;
        for (const Json& node : told["nodes"]) now[node[0].get<std::uint32_t>()] = node;
        return now;
    }
    void apply(const std::string& text) {
        const std::string name = "event: ", data = "\ndata: ";
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t line = text.find(data, at), end = text.find("\n\n", at);
            CHECK(text.compare(at, name.size(), name) == 0 && line < end);
            take(text.substr(at + name.size(), line - at - name.size()),
                 Json::parse(text.substr(line + data.size(), end - line - data.size())));
            at = end + 2;
        }
    }
    void take(const std::string& name, const Json& data) {
        if (name == "snapshot") {
            const std::size_t count = snapshots + 1;
            *this = Mirror();
            snapshots = count;
            page_size = data["page_size"];
            groups = data["groups"];
            hung.resize(groups.size() - 1);
        } else if (name == "records") {
            for (const auto& [id, word] : data["words"].items()) words[id] = word;
            for (const Json& record : data["records"]) take_record(record);
        } else if (name == "exact") {
            exact = true;
        } else if (name == "nodes") {
            for (const Json& page : data["gone"]) nodes.erase(page.get<std::uint32_t>());
            for (const Json& node : data["nodes"]) nodes[node[0].get<std::uint32_t>()] = node;
        } else {
            CHECK_EQ(name, "stats");
            stats = data;
        }
    }
    void take_hung(const Json& record) {
        const std::size_t group = record["group"];
        std::map<std::uint32_t, std::uint32_t>& in = hung.at(group - 1);
        if (record.contains("removed")) {
            for (const Json& page : record["removed"]) in.erase(page.get<std::uint32_t>());
            return;
        }
        CHECK_EQ(record["stored"].size(), record["under"].size());
        for (std::size_t i = 0; i < record["stored"].size(); ++i)
            in[record["stored"][i]] = record["under"][i];
    }
    void take_record(const Json& record) {
        if (record["group"] != 0) {
            take_hung(record);
            return;
        }
        if (record.contains("removed")) {
            for (const Json& page : record["removed"]) pages.erase(page.get<std::uint32_t>());
            return;
        }
        std::uint32_t parent = record["parent"];
        const std::vector<std::uint32_t> tokens = record["tokens"];
        for (std::size_t i = 0; i < record["stored"].size(); ++i) {
            Page page{parent, record["position"].get<std::uint64_t>() + i * page_size, {},
                      record["space"]};
            const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(i * page_size);
            page.tokens.assign(first, first + static_cast<std::ptrdiff_t>(page_size));
            parent = record["stored"][i];
            pages[parent] = std::move(page);
        }
    }
    /// The tokens from the beginning to the end of a page.
    [[nodiscard]] std::vector<std::uint32_t> prefix(std::uint32_t page) const {
        if (page == 0) return {};
        return joined(prefix(pages.at(page).parent), pages.at(page).tokens);
    }
};

/// Which pages of a group hang on which.
static std::map<std::uint32_t, std::uint32_t> hung_in(const Json& dump, const std::string& group) {
    std::map<std::uint32_t, std::uint32_t> hung;
    for (const Json& node : dump["nodes"])
        for (std::size_t i = 0; i < node["pages"].size(); ++i) {
            const std::uint32_t page = node["group_pages"][group][i];
            if (page != 0) hung[page] = node["pages"][i];
        }
    return hung;
}

/// What the mirror has of groups beside the first is what a dump says, and each pool's counters.
static void check_hung(const Mirror& mirror, engine::Core& core) {
    const Json dump = Json::parse(core.kv().cache().dump());
    for (std::uint32_t group = 0; group < mirror.groups.size(); ++group) {
        const rkv_pool_stats pages = core.kv().table().pool_stats(group);
        const Json& told = mirror.stats["pages"][group];
        CHECK_EQ(told["total"], pages.total_page_count);
        CHECK_EQ(told["free"], pages.free_page_count);
        CHECK_EQ(told["private"], pages.private_page_count);
        CHECK_EQ(told["cached"], pages.cached_page_count);
        CHECK_EQ(told["reclaimable"], pages.reclaimable_page_count);
        if (group == 0) continue;
        CHECK(hung_in(dump, std::to_string(group)) == mirror.hung.at(group - 1));
        CHECK_EQ(mirror.hung.at(group - 1).size(), pages.cached_page_count);
    }
}

/// The mirror is what the cache says of itself when it is asked in other ways: by lookups of each
/// page's prefix, by its nodes, and by its counters.
static void check_mirror(const Mirror& mirror, engine::Core& core) {
    const rkv::Cache& cache = core.kv().cache();
    CHECK(mirror.exact);
    CHECK_EQ(mirror.page_size, cache.page_size());
    CHECK_EQ(mirror.pages.size(), cache.stats().cached_page_count);
    CHECK_EQ(mirror.nodes.size(), cache.stats().node_count);
    std::size_t in_nodes = 0;
    for (const auto& [last, node] : mirror.nodes) {
        CHECK_EQ(mirror.pages.count(last), 1U);
        in_nodes += node[1].get<std::size_t>();
        CHECK_EQ(node[2], 0);
    }
    CHECK_EQ(in_nodes, mirror.pages.size());
    for (const auto& [number, page] : mirror.pages) {
        CHECK(cache.contains_page(number));
        if (!page.space.empty()) continue;
        const std::vector<std::uint32_t> tokens = mirror.prefix(number);
        CHECK_EQ(tokens.size(), page.position + mirror.page_size);
        // Whatever other groups lack.
        CHECK_EQ(cache.probe_groups(tokens).depths.known_position_count, tokens.size());
        for (const std::uint32_t id : page.tokens) {
            if (id >= 128) continue;
            CHECK_EQ(mirror.words.at(std::to_string(id)), std::string(1, static_cast<char>(id)));
        }
    }
    check_hung(mirror, core);
    CHECK_EQ(mirror.stats["prompt_tokens"], core.metrics().answered_tokens.load());
    CHECK_EQ(mirror.stats["cached_tokens"], core.metrics().found_tokens.load());
}

/// A prompt that may begin like an earlier one.
static engine::RequestSpec some_request(std::uint64_t i) {
    engine::RequestSpec spec =
        greedy(joined(random_tokens(i % 3, 16 + 8 * (i % 5)), random_tokens(i, 40 + i % 50)), 4);
    if (i % 7 == 6) spec.cache_salt = "salt" + std::to_string(i % 2);
    return spec;
}

static engine::EngineConfig small_config(std::uint64_t ring,
                                         const Checkpoint& checkpoint = model()) {
    engine::EngineConfig config = tiny_config(checkpoint);
    config.kv.page_count = 60;
    config.kv.journal_bytes = ring;
    return config;
}

static void b11_events_tell_what_the_cache_holds() {
    TestCore core(small_config(journal_bytes));
    for (std::uint64_t i = 0; i < 5; ++i) core.complete(some_request(i));
    // One reader from here on, and one that comes anew each time.
    engine::CacheEvents events(core.core());
    Mirror mirror;
    for (std::uint64_t i = 5; i < 60; ++i) {
        mirror.read(events, core.core().kv().cache());
        check_mirror(mirror, core.core());
        engine::CacheEvents later(core.core());
        Mirror fresh;
        fresh.read(later, core.core().kv().cache());
        check_mirror(fresh, core.core());
        CHECK(fresh.pages == mirror.pages);
        CHECK(fresh.nodes == mirror.nodes);
        core.complete(some_request(i));
    }
    CHECK_EQ(mirror.snapshots, 1U);
    CHECK(core.cache().evicted_page_count > 100);
    CHECK_EQ(events.lost_count(), 0U);
}

/// With layers of several kinds the pages of each, and what they hang on.
static void check_groups(const Checkpoint& checkpoint, const Json& kinds) {
    engine::EngineConfig config = small_config(journal_bytes, checkpoint);
    // Those of each group go at times of their own.
    config.kv.window_page_count = 30;
    config.kv.state_page_count = 10;
    TestCore core(config);
    engine::CacheEvents events(core.core());
    Mirror mirror;
    std::size_t most = 0;
    for (std::uint64_t i = 0; i < 40; ++i) {
        core.complete(some_request(i));
        mirror.read(events, core.core().kv().cache());
        check_mirror(mirror, core.core());
        engine::CacheEvents later(core.core());
        Mirror fresh;
        fresh.read(later, core.core().kv().cache());
        check_mirror(fresh, core.core());
        most = std::max(most, mirror.hung.at(0).size());
    }
    CHECK_EQ(mirror.groups, kinds);
    CHECK(most >= 4);
    CHECK(core.cache().evicted_page_count > 100);
    CHECK_EQ(mirror.snapshots, 1U);
}

static void b11_g15_events_of_windows() {
    check_groups(
        Checkpoint(engine::gemma3_checkpoint(engine::llama_checkpoint(6, 64, 96, 2, 1, 64), 24)),
        {{{"kind", "full"}}, {{"kind", "window"}, {"window", 24}}});
}

static void b11_g15_events_of_states() {
    check_groups(
        Checkpoint(engine::qwen3_next_checkpoint(engine::llama_checkpoint(4, 64, 96, 2, 1, 64))),
        {{{"kind", "full"}}, {{"kind", "state"}}});
}

static void b11_a_request_that_runs_locks_what_it_uses() {
    TestCore core(small_config(journal_bytes));
    const std::vector<std::uint32_t> prompt = random_tokens(1, 64);
    core.complete(greedy(prompt, 4));
    engine::CacheEvents events(core.core());
    Mirror mirror;
    const auto locked_pages = [&] {
        mirror.read(events, core.core().kv().cache());
        std::uint64_t count = 0;
        for (const auto& [page, node] : mirror.nodes)
            if (node[2] > 0) count += node[1].get<std::uint64_t>();
        return count;
    };
    CHECK_EQ(locked_pages(), 0U);
    const auto heard = core.add(greedy(joined(prompt, random_tokens(2, 40)), 8));
    core.step();
    CHECK(!heard->result);
    const rkv_page_table_stats pages = core.pages();
    CHECK_EQ(locked_pages(), pages.cached_page_count - pages.reclaimable_page_count);
    CHECK(pages.reclaimable_page_count < pages.cached_page_count);
    CHECK_EQ(mirror.stats["pages"][0]["private"], pages.private_page_count);
    core.run();
    CHECK_EQ(locked_pages(), 0U);
}

static void b11_a_page_that_is_too_slow_begins_again() {
    TestCore core(small_config(1024 + 256 * 16));
    engine::CacheEvents events(core.core());
    Mirror mirror;
    for (std::uint64_t round = 1; round <= 3; ++round) {
        mirror.read(events, core.core().kv().cache());
        check_mirror(mirror, core.core());
        CHECK_EQ(events.lost_count(), round - 1);
        CHECK_EQ(mirror.snapshots, round);
        for (std::uint64_t i = 0; i < 30; ++i) core.complete(some_request(100 * round + i));
    }
}

/// In HTTP/1.0 there are no chunks.
static void b11_events_have_no_chunks_in_http_1_0() {
    Running running(with_journal, 64, with_page);
    const Socket socket(running.port());
    CHECK(socket.send("GET /cache/events HTTP/1.0\r\nHost: localhost\r\n\r\n"));
    std::string text;
    CHECK(socket.read_until("\n\n", text));
    CHECK_EQ(text.compare(0, 12, "HTTP/1.1 200"), 0);
    CHECK(text.find("Transfer-Encoding") == std::string::npos);
    const std::size_t head = text.find("\r\n\r\n");
    CHECK(head != std::string::npos);
    CHECK_EQ(text.compare(head + 4, 7, "event: "), 0);
}

static void b11_text_in_events_is_no_event() {
    Running running(with_journal, 64, with_page);
    const Socket socket(running.port());
    CHECK(socket.send(get_text("/cache/events", "localhost")));
    const std::vector<std::uint32_t> prompt =
        engine::encode("\n\nevent: exact\ndata: {\"<script>\xE2\x80\xA8\"}\n\n\xFF</script>");
    CHECK_EQ(post(running.port(), with(request("", 8), "prompt", prompt)).status, 200);
    std::string text;
    CHECK(socket.read_until("\"stored\"", text));
    CHECK(socket.read_until("\n\n", text));
    CHECK_EQ(text.find("event: exact\ndata: {\"<"), std::string::npos);
    running.shutdown();
}

static void b11_event_streams_are_bounded() {
    Running running(with_journal, 64, with_page);
    std::vector<std::unique_ptr<Socket>> open;
    for (int i = 0; i < 8; ++i) {
        open.push_back(std::make_unique<Socket>(running.port()));
        CHECK(open.back()->send(get_text("/cache/events", "localhost")));
        std::string text;
        CHECK(open.back()->read_until("event: exact", text));
    }
    const Response refused = get(running.port(), "/cache/events", "localhost");
    CHECK_EQ(refused.status, 503);
    CHECK_EQ(reason_of(refused), "too many pages are open: 8");
    CHECK_EQ(get(running.port(), "/", "localhost").status, 200);
    CHECK_EQ(http(running.port(), "GET", "/health").status, 200);
    // Who leaves makes room.
    open.pop_back();
    CHECK(eventually([&] { return is_let_in(running.port(), "/cache/events", "localhost"); }));
    // Open pages don't keep the server from ending; their streams end as they should.
    running.shutdown();
    CHECK(open.front()->read_all().find("0\r\n\r\n") != std::string::npos);
}

int main() {
    RUN(b11_the_page_is_off_unless_it_was_asked_for);
    RUN(b11_the_page_is_not_shown_to_other_machines);
    RUN(b11_a_name_that_points_here_gets_nothing);
    RUN(b11_the_page_is_one_file_that_runs_only_its_own);
    RUN(b11_events_tell_what_the_cache_holds);
    RUN(b11_a_request_that_runs_locks_what_it_uses);
    RUN(b11_a_page_that_is_too_slow_begins_again);
    RUN(b11_g15_events_of_windows);
    RUN(b11_g15_events_of_states);
    RUN(b11_events_have_no_chunks_in_http_1_0);
    RUN(b11_text_in_events_is_no_event);
    RUN(b11_event_streams_are_bounded);
}
