// B11: POST /v1/chat/completions, with a tokenizer whose tokens are bytes and words.
#include "http/answer_format.hpp"
#include "server_fixture.hpp"
#include "small_tokenizer.hpp"

using namespace test;
using Ids = std::vector<std::uint32_t>;

namespace {

const ChatCheckpoint& chat_model() {
    static const ChatCheckpoint checkpoint;
    return checkpoint;
}

/// A server of that model.
Running running_chat() {
    return Running([](engine::EngineConfig& config) { config.model = chat_model().path(); });
}

Json message(const char* role, const std::string& content) {
    return {{"role", role}, {"content", content}};
}

Json only_user(const std::string& content) { return Json::array({message("user", content)}); }

/// A greedy request that ends where it is told to.
Json chat(const Json& messages, std::size_t max_tokens) {
    return {{"messages", messages}, {"max_tokens", max_tokens}, {"temperature", 0},
            {"ignore_eos", true}, {"return_token_ids", true}};
}

Response post_chat(int port, const Json& body) {
    return http(port, "POST", "/v1/chat/completions", body.dump());
}

std::string text_of(const Ids& ids) {
    const auto tokenizer = chat_model().tokenizer();
    engine::Utf8Stream stream;
    std::string text;
    for (const std::uint32_t id : ids) text += stream.push(tokenizer->decode(id));
    return text + stream.finish();
}

}  // namespace

static void b11_a_chat_is_a_completion_of_its_template() {
    Running running = running_chat();
    const Json messages = {message("system", "Be brief."), message("user", "Hello the world")};
    const Response response = post_chat(running.port(), chat(messages, 24));
    CHECK_EQ(response.status, 200);
    const Json body = response.json();
    CHECK_EQ(body["object"], "chat.completion");
    CHECK_EQ(body["id"].get<std::string>().rfind("chatcmpl-", 0), 0U);
    const Json& choice = choice_of(body);
    CHECK_EQ(choice["message"]["role"], "assistant");
    CHECK_EQ(choice["finish_reason"], "length");
    CHECK_EQ(choice["message"]["content"], text_of(choice["token_ids"].get<Ids>()));
    const std::string prompt =
        "<turn>system:Be brief.<end><turn>user:Hello the world<end><turn>assistant:";
    Json asked = with(request(prompt, 24), "ignore_eos", true);
    const Json completion = post(running.port(), asked).json();
    CHECK_EQ(choice_of(completion)["text"], choice["message"]["content"]);
    CHECK_EQ(completion["usage"]["prompt_tokens"], body["usage"]["prompt_tokens"]);
    CHECK_EQ(body["usage"]["completion_tokens"], 24);
    // The end token ends an answer, and is no part of it. A random model never says it by itself.
    asked["ignore_eos"] = false;
    CHECK_EQ(choice_of(post(running.port(), asked).json())["text"], choice_of(completion)["text"]);
    running.audit_idle();
}

static void b11_a_streamed_chat_is_the_same_in_pieces() {
    Running running = running_chat();
    Json asked = chat(only_user("\xE2\x82\xAC 5 for the \xF0\x9F\x98\x80?"), 60);
    asked["n"] = 2;
    asked["temperature"] = 1.5;
    asked["seed"] = 7;
    asked["stop"] = {"\xE2\x82\xAC"};
    const Json whole = post_chat(running.port(), asked).json();
    asked["stream"] = true;
    asked["stream_options"] = {{"include_usage", true}};
    const Response response = post_chat(running.port(), asked);
    CHECK(response.head.find("text/event-stream") != std::string::npos);
    std::vector<Json> events = events_of(response);
    const Json last = events.back();
    events.pop_back();
    CHECK(last["choices"].empty());
    CHECK_EQ(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    CHECK(last["usage"]["prompt_tokens_details"]["cached_tokens"] > 0);
    std::vector<Json> seen(2, {{"content", ""}, {"reasons", 0}, {"roles", 0}});
    for (const Json& event : events) {
        CHECK_EQ(event["object"], "chat.completion.chunk");
        CHECK(event["usage"].is_null());
        const Json& choice = choice_of(event);
        Json& mine = seen.at(choice["index"].get<std::size_t>());
        if (choice["delta"].contains("role")) {
            CHECK_EQ(mine["content"], "");
            mine["roles"] = mine["roles"].get<int>() + 1;
        }
        mine["content"] = mine["content"].get<std::string>() +
                          choice["delta"].value("content", std::string());
        if (!choice["finish_reason"].is_null()) mine["reasons"] = mine["reasons"].get<int>() + 1;
    }
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK_EQ(seen[i]["content"], whole["choices"][i]["message"]["content"]);
        CHECK_EQ(seen[i]["roles"], 1);
        CHECK_EQ(seen[i]["reasons"], 1);
    }
    CHECK(seen[0]["content"] != seen[1]["content"]);
    running.audit_idle();
}

/// Who wants to know sees with the first token what the prompt became, and how much was there.
static void b11_a_stream_begins_with_its_prompt() {
    Running running = running_chat();
    Json asked = chat({message("system", std::string(50, 's')), message("user", "Hi")}, 4);
    const Json whole = post_chat(running.port(), asked).json();
    const Ids prompt = whole["prompt_token_ids"];
    CHECK_EQ(prompt.size(), whole["usage"]["prompt_tokens"].get<std::size_t>());
    CHECK(prompt == chat_model().tokenizer()->encode("<turn>system:" + std::string(50, 's') +
                                                     "<end><turn>user:Hi<end><turn>assistant:"));
    asked["stream"] = true;
    asked["stream_options"] = {{"include_usage", true}};
    const std::vector<Json> events = events_of(post_chat(running.port(), asked));
    CHECK(events.front()["prompt_token_ids"] == whole["prompt_token_ids"]);
    CHECK(events.front()["cached_tokens"] > 0);
    CHECK_EQ(events.front()["cached_tokens"],
             events.back()["usage"]["prompt_tokens_details"]["cached_tokens"]);
    for (std::size_t i = 1; i < events.size(); ++i)
        CHECK(!events[i].contains("prompt_token_ids") && !events[i].contains("cached_tokens"));
    asked["return_token_ids"] = false;
    for (const Json& event : events_of(post_chat(running.port(), asked)))
        CHECK(!event.contains("prompt_token_ids") && !event.contains("cached_tokens"));
}

static void b11_a_turn_finds_the_turns_before() {
    Running running = running_chat();
    Json messages = {message("system", std::string(200, 's')), message("user", "One?")};
    std::size_t known = 0;
    for (int turn = 0; turn < 3; ++turn) {
        const Json body = post_chat(running.port(), chat(messages, 8)).json();
        const Json& usage = body["usage"];
        const auto prompt = usage["prompt_tokens"].get<std::size_t>();
        const auto cached = usage["prompt_tokens_details"]["cached_tokens"].get<std::size_t>();
        // All whole pages of what the turn before sent.
        CHECK(cached >= known / 16 * 16 && cached < prompt);
        known = prompt;
        messages.push_back(message("assistant", "Yes."));
        messages.push_back(message("user", "And the next?"));
    }
    running.audit_idle();
}

static void b11_logprobs_of_a_chat() {
    Running running = running_chat();
    Json asked = chat(only_user("Hi"), 6);
    asked["logprobs"] = true;
    asked["top_logprobs"] = 3;
    const Json choice = choice_of(post_chat(running.port(), asked).json());
    const Json& tokens = choice["logprobs"]["content"];
    CHECK_EQ(tokens.size(), 6U);
    const auto tokenizer = chat_model().tokenizer();
    for (std::size_t i = 0; i < 6; ++i) {
        const std::string_view piece =
            engine::token_bytes(*tokenizer, choice["token_ids"][i].get<std::uint32_t>());
        CHECK_EQ(tokens[i]["bytes"].size(), piece.size());
        CHECK_EQ(tokens[i]["top_logprobs"].size(), 3U);
        CHECK_EQ(tokens[i]["top_logprobs"][0]["logprob"], tokens[i]["logprob"]);  // greedy
    }
    running.audit_idle();
}

/// Special tokens are no text of an answer, but of a prompt they are what its client wrote.
static void b11_an_echo_is_the_prompt_as_it_was_sent() {
    Running running = running_chat();
    const std::string prompt = "<turn>user:the<end><turn>assistant:";
    Json asked = with(request(prompt, 8), "ignore_eos", true);
    const std::string answer = choice_of(post(running.port(), asked).json())["text"];
    asked["echo"] = true;
    for (const Json& given : {Json(prompt), Json::array({prompt})}) {
        asked["prompt"] = given;
        CHECK_EQ(choice_of(post(running.port(), asked).json())["text"], prompt + answer);
    }
    asked["stream"] = true;
    std::string text;
    for (const Json& event : events_of(post(running.port(), asked)))
        for (const Json& choice : event["choices"]) text += choice["text"].get<std::string>();
    CHECK_EQ(text, prompt + answer);
    // Of ids there is no other text than theirs.
    asked["prompt"] = {turn_id, the_id};
    asked["stream"] = false;
    const std::string of_ids = choice_of(post(running.port(), asked).json())["text"];
    CHECK_EQ(of_ids.find("the"), 0U);
    running.audit_idle();
}

/// Without max_tokens an answer ends where the memory does.
static void b11_a_chat_may_be_as_long_as_there_is_room() {
    Running running([](engine::EngineConfig& config) {
        config.model = chat_model().path();
        config.max_positions = 100;
    });
    Json asked = chat(only_user("Hi"), 1);
    asked.erase("max_tokens");
    const Json body = post_chat(running.port(), asked).json();
    CHECK_EQ(body["usage"]["total_tokens"], 101);
    CHECK_EQ(choice_of(body)["finish_reason"], "length");
    asked["max_completion_tokens"] = 5;
    CHECK_EQ(post_chat(running.port(), asked).json()["usage"]["completion_tokens"], 5);
    asked["messages"] = only_user(std::string(200, 'x'));
    asked.erase("max_completion_tokens");
    const Response too_long = post_chat(running.port(), asked);
    CHECK_EQ(too_long.status, 400);
    const Json error = too_long.json()["error"];
    CHECK_EQ(error["param"], "messages");
    const std::string reason = error["message"];
    CHECK_EQ(reason.find("messages: "), 0U);
    CHECK(reason.find("exceed the limit of 100 positions") != std::string::npos);
    running.audit_idle();
}

static void b11_bad_chats_get_a_reason() {
    Running running = running_chat();
    const Json good = chat(only_user("Hi"), 4);
    const Json image = {{{"type", "image_url"}, {"image_url", {{"url", "x"}}}}};
    const std::vector<std::pair<std::string, Json>> cases = {
        {"messages", with(good, "messages", nullptr)},
        {"messages", with(good, "messages", Json::array())},
        {"messages", with(good, "messages", "Hi")},
        {"messages", with(good, "messages", {"Hi"})},
        {"messages", with(good, "messages", Json::array({{{"role", "user"}}}))},
        {"messages", with(good, "messages", Json::array({message("wizard", "Hi")}))},
        {"messages", with(good, "messages", {{{"content", "Hi"}}})},
        {"messages", with(good, "messages", {{{"role", "user"}, {"content", 5}}})},
        {"messages", with(good, "messages", {{{"role", "user"}, {"content", image}}})},
        {"messages", with(good, "messages", only_user("refuse me"))},
        {"max_tokens", with(good, "max_tokens", 0)},
        {"max_completion_tokens", with(good, "max_completion_tokens", "many")},
        {"n", with(good, "n", 0)},
        {"logprobs", with(good, "logprobs", 2)},
        {"top_logprobs", with(good, "top_logprobs", 2)},
        {"temperature", with(good, "temperature", -1)},
        {"tools", with(good, "tools", {{{"type", "function"}}})},
        {"tool_choice", with(good, "tool_choice", "auto")},
        {"response_format", with(good, "response_format", {{"type", "json_object"}})},
        {"reasoning_effort", with(good, "reasoning_effort", "high")},
        {"chat_template_kwargs", with(good, "chat_template_kwargs", {{"thinking", true}})},
        {"best_of", with(good, "best_of", 4)},
        {"beam_width", with(good, "beam_width", 4)},
        {"length_penalty", with(good, "length_penalty", 0.5)},
        {"continuation_suffix", with(good, "continuation_suffix", "x")},
        {"top_k", with(good, "top_k", 1)},
        {"retain", with(good, "retain", true)},
        {"frequency_penalty", with(good, "frequency_penalty", 1)},
        {"model", with(good, "model", 7)},
    };
    for (const auto& [param, body] : cases) {
        const Response response = post_chat(running.port(), body);
        if (response.status != 400) fail(__FILE__, __LINE__, "not refused: " + body.dump());
        const Json error = response.json()["error"];
        CHECK_EQ(error["param"], param);
        CHECK_EQ(error["type"], "invalid_request_error");
        CHECK(error["code"].is_null());
        CHECK_EQ(error["message"].get<std::string>().find(param), 0U);
    }
    const Response other = post_chat(running.port(), with(good, "model", "other"));
    CHECK_EQ(other.status, 404);
    CHECK_EQ(other.json()["error"]["code"], "model_not_found");
    const Json parts = {{{"type", "text"}, {"text", "H"}}, {{"type", "text"}, {"text", "i"}}};
    const std::string expected = choice_of(post_chat(running.port(), good).json()).dump();
    for (const Json& same :
         {with(good, "messages", {{{"role", "user"}, {"content", parts}}}),
          with(good, "tools", Json::array()), with(good, "tool_choice", "none"),
          with(good, "response_format", {{"type", "text"}}), with(good, "model", "tiny"),
          with(good, "frequency_penalty", 0)})
        CHECK_EQ(choice_of(post_chat(running.port(), same).json()).dump(), expected);
    running.audit_idle();
}

/// curl calls every body a form, which may not be long for HTTP libraries.
static void b11_a_body_is_read_whatever_it_is_called() {
    Running running = running_chat();
    const auto status = [&](const std::string& type) {
        const Json asked = with(chat(only_user("Hi"), 2), "user", std::string(50000, 'u'));
        const std::string body = asked.dump();
        const Socket socket(running.port());
        CHECK(socket.send("POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\n"
                          "Connection: close\r\nContent-Type: " + type +
                          "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                          body));
        return parse_response(socket.read_all()).status;
    };
    CHECK_EQ(status("application/x-www-form-urlencoded"), 200);
    CHECK_EQ(status("application/json"), 200);
    CHECK_EQ(status("text/plain"), 200);
    running.audit_idle();
}

int main() {
    RUN(b11_a_chat_is_a_completion_of_its_template);
    RUN(b11_a_streamed_chat_is_the_same_in_pieces);
    RUN(b11_a_stream_begins_with_its_prompt);
    RUN(b11_a_turn_finds_the_turns_before);
    RUN(b11_logprobs_of_a_chat);
    RUN(b11_an_echo_is_the_prompt_as_it_was_sent);
    RUN(b11_a_chat_may_be_as_long_as_there_is_room);
    RUN(b11_bad_chats_get_a_reason);
    RUN(b11_a_body_is_read_whatever_it_is_called);
    return 0;
}
