// B11: the server over real sockets: what it answers to completions, right ones and wrong ones.
#include "server_fixture.hpp"

#include <algorithm>
#include <set>

using namespace test;

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
        const Json same = post(running.port(), with(request("", 12), "prompt", given)).json();
        CHECK_EQ(choice_of(same)["text"], expected->text);
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

/// In HTTP/1.0 the end of the connection is the end of an answer.
static void b11_http_1_0_has_no_chunks() {
    Running running;
    Json asked = request("no chunks", 12);
    const std::string expected = choice_of(post(running.port(), asked).json())["text"];
    asked["stream"] = true;
    const std::string body = asked.dump();
    for (const std::string connection : {"close", "Keep-Alive"}) {
        const Socket socket(running.port());
        CHECK(socket.send("POST /v1/completions HTTP/1.0\r\nConnection: " + connection +
                          "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                          body));
        const Response response = parse_response(socket.read_all());
        CHECK_EQ(response.status, 200);
        CHECK(response.head.find("Transfer-Encoding") == std::string::npos);
        CHECK(response.head.find("Connection: close") != std::string::npos);
        std::string text;
        for (const Json& event : events_of(response))
            text += choice_of(event)["text"].get<std::string>();
        CHECK_EQ(text, expected);
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
        {"top_k", with(good, "top_k", 1)},
        {"min_p", with(good, "min_p", 0.1)},
        {"repetition_penalty", with(good, "repetition_penalty", 1.1)},
        {"stop_token_ids", with(good, "stop_token_ids", {5})},
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
        {"presence_penalty", with(good, "presence_penalty", 0.5)},
        {"logit_bias", with(good, "logit_bias", {{"5", 1}})},
        {"suffix", with(good, "suffix", "x")},
        {"repetition_penalty", with(good, "repetition_penalty", 0)},
        {"typical_p", with(good, "typical_p", 0.5)},
        {"response_format", with(good, "response_format", {{"type", "json_object"}})},
        {"guided_regex", with(good, "guided_regex", "a+")},
        {"bad_words", with(good, "bad_words", {"x"})},
        {"max_completion_tokens", with(good, "max_completion_tokens", 7)},
        {"max_completion_tokens",
         with(with(good, "max_tokens", nullptr), "max_completion_tokens", 4)},
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
                             request(std::string(5000, 'x'), 4), request("x", 1000000)}) {
        const Response response = post(running.port(), body);
        CHECK_EQ(response.status, 400);
        CHECK_EQ(response.json()["error"]["param"], "prompt");
    }
    CHECK_EQ(post(running.port(), with(good, "model", "other")).status, 404);
    CHECK_EQ(post(running.port(), with(good, "model", "tiny")).status, 200);
    // What changes nothing.
    const std::vector<std::pair<const char*, Json>> neutral = {
        {"top_k", 0}, {"top_k", -1}, {"repetition_penalty", 1.0}, {"typical_p", 1},
        {"response_format", {{"type", "text"}}}, {"max_completion_tokens", 4}};
    for (const auto& [name, value] : neutral)
        CHECK_EQ(post(running.port(), with(good, name, value)).status, 200);
    CHECK_EQ(running.metrics().finished_length.load(), 1 + neutral.size());
    running.audit_idle();
}

static void b11_text_offsets_count_characters() {
    Running running;
    const auto characters = [](const std::string& text) {
        return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
            return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
        }));
    };
    Json asked = with(with(request("parameters", 60), "logprobs", 0), "ignore_eos", true);
    asked["temperature"] = 2;
    asked["seed"] = 7;
    const Json whole = choice_of(post(running.port(), asked).json());
    asked["stream"] = true;
    std::string text;
    std::vector<std::size_t> offsets;
    for (const Json& event : events_of(post(running.port(), asked))) {
        const Json& choice = choice_of(event);
        for (const Json& offset : choice["logprobs"]["text_offset"]) {
            offsets.push_back(offset.get<std::size_t>());
            CHECK_EQ(offsets.back(), characters(text));
        }
        text += choice["text"].get<std::string>();
    }
    CHECK(whole["logprobs"]["text_offset"] == Json(offsets));
    // Random bytes are mostly no characters: U+FFFD stands for them.
    CHECK(characters(text) < text.size());
}

int main() {
    RUN(b11_a_completion_is_what_the_engine_generates);
    RUN(b11_a_stream_is_the_same_in_pieces);
    RUN(b11_http_1_0_has_no_chunks);
    RUN(b11_parameters_of_a_completion);
    RUN(b11_bad_requests_get_a_reason);
    RUN(b11_text_offsets_count_characters);
    return 0;
}
