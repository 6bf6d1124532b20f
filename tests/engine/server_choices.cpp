// C10: continuations, several choices and beam search over real sockets: what is answered, and what
// is refused with which status.
#include "server_fixture.hpp"

#include <algorithm>
#include <set>

using namespace test;

namespace {

Json continuation(const Json& parent, const std::string& suffix, std::size_t max_tokens) {
    return {{"continuation_of", parent},
            {"continuation_suffix", suffix},
            {"max_tokens", max_tokens},
            {"temperature", 0}};
}

Json retained(const std::string& prompt, std::size_t max_tokens) {
    return with(with(request(prompt, max_tokens), "retain", true), "return_token_ids", true);
}

Json details_of(const Json& body) { return body["usage"]["prompt_tokens_details"]; }

/// The ids of a completion's prompt and output.
std::vector<std::uint32_t> all_tokens(const std::string& prompt, const Json& choice) {
    return joined(joined({engine::bos_id}, engine::encode(prompt)),
                  choice["token_ids"].get<std::vector<std::uint32_t>>());
}

}  // namespace

static void c10_a_completion_continues_another() {
    Running running;
    const std::string prompt = "Think about pages";
    const Json first = post(running.port(), retained(prompt, 25)).json();
    const Json& id = choice_of(first)["retained_id"];
    CHECK_EQ(id, first["id"]);
    CHECK_EQ(id.get<std::string>().size(), 5U + 32U);
    const auto whole = joined(all_tokens(prompt, choice_of(first)), engine::encode(" so: "));
    const Json expected = post(running.port(), with(request("", 12), "prompt", whole)).json();

    const Json second = post(running.port(), continuation(id, " so: ", 12)).json();
    CHECK_EQ(choice_of(second)["text"], choice_of(expected)["text"]);
    CHECK_EQ(second["usage"]["prompt_tokens"], whole.size());
    CHECK_EQ(details_of(second)["inherited_tokens"], whole.size() - 6);
    CHECK_EQ(details_of(expected)["inherited_tokens"], 0);
    CHECK(second["id"] != first["id"] && !choice_of(second).contains("retained_id"));
    // As a stream, with ids for a suffix, an empty prompt or the whole one.
    Json asked = continuation(id, "", 12);
    asked["continuation_suffix"] = engine::encode(" so: ");
    asked["stream"] = true;
    for (const Json& given : {Json(""), Json(nullptr), Json(whole)}) {
        std::string text;
        for (const Json& event : events_of(post(running.port(), with(asked, "prompt", given))))
            text += choice_of(event)["text"].get<std::string>();
        CHECK_EQ(text, choice_of(expected)["text"].get<std::string>());
    }
    // The whole prompt also does when nobody knows the parent.
    Json orphan = continuation("cmpl-0", " so: ", 12);
    CHECK_EQ(post(running.port(), orphan).status, 404);
    const Json found = post(running.port(), with(orphan, "prompt", whole)).json();
    CHECK_EQ(choice_of(found)["text"], choice_of(expected)["text"]);
    CHECK_EQ(details_of(found)["inherited_tokens"], 0);

    const std::string path = "/v1/completions/" + id.get<std::string>();
    CHECK_EQ(http(running.port(), "DELETE", path).json()["deleted"], true);
    CHECK_EQ(http(running.port(), "DELETE", path).status, 404);
    CHECK_EQ(post(running.port(), continuation(id, "", 1)).status, 404);
    running.audit_idle();
}

static void c10_parents_that_cannot_be_continued() {
    Running running([](engine::EngineConfig& config) {
        config.kv.retained_sequences = 1;
        config.before_forward = [](std::size_t) { std::this_thread::sleep_for(2ms); };
    });
    const auto refused = [&](const Json& body, int status, const std::string& reason) {
        const Response response = post(running.port(), body);
        CHECK_EQ(response.status, status);
        const Json error = response.json()["error"];
        CHECK_EQ(error["type"], "invalid_request_error");
        CHECK(error["message"].get<std::string>().find(reason) != std::string::npos);
        return error["param"];
    };
    CHECK_EQ(refused(continuation("cmpl-17", "x", 4), 404, "nothing is retained under cmpl-17"),
             "continuation_of");
    // Still at work: its id is known from its first event.
    Json endless = with(request("never mind", 2000), "ignore_eos", true);
    endless["stream"] = endless["retain"] = true;
    Socket streamed(running.port());
    CHECK(streamed.send(http_text("POST", "/v1/completions", endless.dump())));
    std::string text;
    CHECK(streamed.read_until("\n\n", text));
    const std::size_t start = text.find("\"id\":\"") + 6;
    const std::string running_id = text.substr(start, 37);
    CHECK_EQ(refused(continuation(running_id, "x", 4), 409, "has not ended yet"),
             "continuation_of");
    streamed.hang_up();
    CHECK(eventually([&] { return running.metrics().finished_cancelled == 1; }));
    refused(continuation(running_id, "x", 4), 404, "nothing is retained");

    const Json mine =
        post(running.port(), with(retained("of mine", 5), "cache_salt", "mine")).json()["id"];
    refused(continuation(mine, "x", 4), 400, "cache_salt");
    refused(with(continuation(mine, "x", 4), "cache_salt", "yours"), 400, "cache_salt");
    refused(with(continuation(mine, "x", 4), "model", "another adapter"), 404, "another adapter");
    Json good = with(continuation(mine, "x", 4), "cache_salt", "mine");
    refused(with(good, "prompt", "other text"), 400, "prompt");
    CHECK_EQ(post(running.port(), good).status, 200);
    // Displaced by the next one: there is room for one.
    const Json next = post(running.port(), retained("another", 5)).json()["id"];
    refused(good, 404, "nothing is retained");
    CHECK_EQ(post(running.port(), continuation(next, "x", 4)).status, 200);
    CHECK_EQ(http(running.port(), "DELETE", "/v1/completions/" + next.get<std::string>()).status,
             200);
    running.audit_idle();
}

static void c10_fields_that_do_not_go_together() {
    Running running;
    const Json good = request("x", 4);
    const Json beams = with(good, "use_beam_search", true);
    const std::vector<std::pair<std::string, Json>> cases = {
        {"n", with(good, "n", 0)},
        {"n", with(good, "n", 129)},
        {"n", with(good, "n", "two")},
        {"best_of", with(good, "best_of", 0)},
        {"best_of", with(with(good, "n", 3), "best_of", 2)},
        {"best_of", with(beams, "best_of", 2)},
        {"stream", with(with(good, "best_of", 2), "stream", true)},
        {"stream", with(beams, "stream", true)},
        {"use_beam_search", with(good, "use_beam_search", 1)},
        {"beam_width", with(good, "beam_width", 2)},
        {"beam_width", with(beams, "beam_width", 0)},
        {"beam_width", with(beams, "beam_width", 129)},
        {"beam_width", with(with(beams, "beam_width", 2), "n", 3)},
        {"length_penalty", with(good, "length_penalty", 1)},
        {"length_penalty", with(beams, "length_penalty", -1)},
        {"temperature", with(beams, "temperature", 0.5)},
        {"top_p", with(beams, "top_p", 0.5)},
        {"retain", with(good, "retain", "yes")},
        {"continuation_suffix", with(good, "continuation_suffix", "x")},
        {"continuation_of", with(good, "continuation_of", 7)},
        {"continuation_of", with(good, "continuation_of", "")},
        {"continuation_suffix", with(continuation("a", "", 4), "continuation_suffix", 7)},
        {"continuation_suffix", with(continuation("a", "", 4), "continuation_suffix", {1, -1})},
        {"echo", with(continuation("a", "", 4), "echo", true)},
    };
    for (const auto& [param, body] : cases) {
        const Response response = post(running.port(), body);
        if (response.status != 400) fail(__FILE__, __LINE__, "not refused: " + body.dump());
        CHECK_EQ(response.json()["error"]["param"], param);
        CHECK(response.json()["error"]["message"].get<std::string>().find(param) == 0);
    }
    CHECK_EQ(running.engine().core().metrics().steps.load(), 0U);
    running.audit_idle();
}

static void c10_choices_in_one_answer_and_as_a_stream() {
    Running running;
    Json drawn = request("several", 20);
    drawn["temperature"] = 1.1;
    drawn["seed"] = 4;
    const Json one = post(running.port(), drawn).json();
    drawn["n"] = 4;
    drawn["logprobs"] = 1;
    drawn["return_token_ids"] = true;
    const Json body = post(running.port(), drawn).json();
    CHECK_EQ(body["choices"].size(), 4U);
    CHECK_EQ(body["usage"]["completion_tokens"], 80);
    CHECK_EQ(choice_of(body)["text"], choice_of(one)["text"]);
    std::set<std::string> different;
    for (std::size_t i = 0; i < 4; ++i) {
        const Json& choice = body["choices"][i];
        CHECK_EQ(choice["index"], i);
        CHECK_EQ(choice["logprobs"]["token_logprobs"].size(), 20U);
        CHECK(!choice.contains("cumulative_logprob"));
        different.insert(choice["text"].get<std::string>());
    }
    CHECK_EQ(different.size(), 4U);
    // The pieces of a stream say whose they are.
    drawn["stream"] = drawn["echo"] = true;
    drawn.erase("logprobs");
    std::vector<std::string> texts(4);
    std::vector<int> ends(4);
    for (const Json& event : events_of(post(running.port(), drawn))) {
        const std::size_t index = choice_of(event)["index"];
        texts[index] += choice_of(event)["text"].get<std::string>();
        ends[index] += choice_of(event)["finish_reason"] == "length" ? 1 : 0;
    }
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK_EQ(texts[i], "several" + body["choices"][i]["text"].get<std::string>());
        CHECK_EQ(ends[i], 1);
    }
    // The best of four by token, which is one of them.
    drawn.erase("stream");
    drawn.erase("echo");
    drawn["n"] = 2;
    drawn["best_of"] = 4;
    const Json best = post(running.port(), drawn).json();
    CHECK_EQ(best["choices"].size(), 2U);
    CHECK_EQ(best["usage"]["completion_tokens"], 80);
    for (const Json& choice : best["choices"])
        CHECK_EQ(different.count(choice["text"].get<std::string>()), 1U);
    CHECK(best["choices"][0]["cumulative_logprob"] >= best["choices"][1]["cumulative_logprob"]);
    running.audit_idle();
}

static void c10_beam_search_as_a_continuation() {
    Running running([](engine::EngineConfig& config) { config.scheduler.max_running = 40; });
    const Json first = post(running.port(), retained("two stages", 30)).json();
    Json beams = with(continuation(first["id"], "</t>\n", 3), "use_beam_search", true);
    beams["n"] = 32;
    beams["return_token_ids"] = true;
    beams["logprobs"] = 2;
    const Json found = post(running.port(), beams).json();
    CHECK_EQ(found["choices"].size(), 32U);
    const std::size_t length = found["usage"]["prompt_tokens"];
    CHECK_EQ(details_of(found)["inherited_tokens"], length - 6);
    CHECK_EQ(found["usage"]["completion_tokens"], 96);
    CHECK(found["first_token_seconds"] > 0);
    std::set<Json> different;
    double before = 0;
    for (const Json& choice : found["choices"]) {
        double sum = 0;
        for (const Json& logprob : choice["logprobs"]["token_logprobs"])
            sum += logprob.get<double>();
        CHECK(std::abs(sum - choice["cumulative_logprob"].get<double>()) < 1e-9);
        CHECK(choice["index"] == 0 || choice["cumulative_logprob"] <= before);
        before = choice["cumulative_logprob"];
        CHECK_EQ(choice["logprobs"]["top_logprobs"].size(), 3U);
        CHECK_EQ(choice["finish_reason"], "length");
        different.insert(choice["token_ids"]);
    }
    CHECK_EQ(different.size(), 32U);
    // The same with the whole text for a prompt, and with more beams than choices.
    Json whole = beams;
    whole.erase("continuation_of");
    whole.erase("continuation_suffix");
    whole["prompt"] =
        joined(all_tokens("two stages", choice_of(first)), engine::encode("</t>\n"));
    CHECK(post(running.port(), whole).json()["choices"] == found["choices"]);
    beams["n"] = 2;
    beams["beam_width"] = 32;
    const Json few = post(running.port(), beams).json();
    CHECK_EQ(few["choices"].size(), 2U);
    CHECK(few["choices"][1] == found["choices"][1]);

    const std::string metrics = http(running.port(), "GET", "/metrics").body;
    for (const char* line :
         {"engine_continuations_total{from=\"parent\"} 2\n", "engine_retained_sequences 1\n",
          "engine_continuations_total{from=\"lookup\"} 0\n", "engine_forks_total ",
          "engine_dropped_beams_total ", "engine_retained_pages "})
        CHECK(metrics.find(line) != std::string::npos);
    CHECK(running.engine().drop(first["id"].get<std::string>()));
    running.audit_idle();
}

int main() {
    RUN(c10_a_completion_continues_another);
    RUN(c10_parents_that_cannot_be_continued);
    RUN(c10_fields_that_do_not_go_together);
    RUN(c10_choices_in_one_answer_and_as_a_stream);
    RUN(c10_beam_search_as_a_continuation);
    return 0;
}
