#include "bench/client.hpp"

#include "model/json.hpp"

#include <httplib.h>

#include <algorithm>
#include <utility>

namespace engine {

namespace {

using Json = nlohmann::json;

class Recorder final : public Listener {
public:
    explicit Recorder(Client::Done done) : done_(std::move(done)) {}

    void on_token(const TokenOutput& token) override {
        // Beams come when all is over.
        if (token.logits != nullptr) record_.token_times.push_back(Clock::now());
        if (token.sequence == 0) {
            record_.tokens.push_back(token.id);
            return;
        }
        if (record_.other_choices.size() < token.sequence)
            record_.other_choices.resize(token.sequence);
        record_.other_choices[token.sequence - 1].push_back(token.id);
    }
    void on_finish(RequestResult&& result) override {
        record_.finished = Clock::now();
        record_.inherited_tokens = result.inherited_tokens;
        record_.first_token_seconds = result.first_token_seconds;
        if (!result.choices.empty()) record_.retained_id = std::move(result.choices[0].retained_id);
        record_.prompt_tokens = result.prompt_tokens;
        record_.cached_tokens = result.cached_tokens;
        record_.error = std::move(result.error);
        if (result.finish == Finish::cancelled) record_.error = "cancelled";
        done_(std::move(record_));
    }

private:
    Client::Done done_;
    BenchRecord record_;
};

/// A field; null where there is none, or no object to have one. Not every server says everything.
const Json& field(const Json& json, const char* name) {
    static const Json none;
    const auto found = json.find(name);
    return found == json.end() ? none : *found;
}

std::size_t count(const Json& json) {
    return json.is_number_unsigned() ? json.get<std::size_t>() : 0;
}

std::vector<std::uint32_t> ids_of(const Json& choice) {
    const Json& ids = field(choice, "token_ids");
    if (!ids.is_array()) return {};
    return ids.get<std::vector<std::uint32_t>>();
}

/// What an error says: as OpenAI's API words it, or else as it is.
std::string reason_of(const Json& json) {
    const Json& message = field(field(json, "error"), "message");
    return message.is_string() ? message.get<std::string>() : json.dump();
}

/// The fields that a whole answer has and the events of a stream, too.
void read_answer(const Json& json, BenchRecord& record) {
    if (!field(json, "error").is_null()) record.error = reason_of(json);
    // Null until the last event.
    if (const Json& usage = field(json, "usage"); usage.is_object()) {
        const Json& details = field(usage, "prompt_tokens_details");
        record.prompt_tokens = count(field(usage, "prompt_tokens"));
        record.cached_tokens = count(field(details, "cached_tokens"));
        record.inherited_tokens = count(field(details, "inherited_tokens"));
    }
    record.first_token_seconds = json.value("first_token_seconds", record.first_token_seconds);
    for (const Json& choice : field(json, "choices"))
        if (const Json& id = field(choice, "retained_id"); id.is_string())
            record.retained_id = id.get<std::string>();
}

/// An answer that came in one piece.
void read_whole(const std::string& body, BenchRecord& record) {
    const Json json = parse_json(body);
    read_answer(json, record);
    for (const Json& choice : field(json, "choices")) {
        std::vector<std::uint32_t> tokens = ids_of(choice);
        if (count(field(choice, "index")) == 0)
            record.tokens = std::move(tokens);
        else
            record.other_choices.push_back(std::move(tokens));
    }
}

/// Takes server-sent events apart, however the network cut them.
class EventReader {
public:
    explicit EventReader(BenchRecord& record) : record_(record) {}

    void push(const char* data, std::size_t size) {
        pending_.append(data, size);
        for (std::size_t end; (end = pending_.find('\n')) != std::string::npos;) {
            line(pending_.substr(0, end));
            pending_.erase(0, end + 1);
        }
    }
    [[nodiscard]] bool complete() const { return complete_; }

private:
    BenchRecord& record_;
    std::string pending_;
    bool complete_ = false;

    /// What an event has is in one line. Others are empty, or comments that keep a connection.
    void line(const std::string& text) {
        constexpr std::size_t prefix = 5;
        if (text.compare(0, prefix, "data:") != 0) return;
        const std::size_t begin = text.find_first_not_of(' ', prefix);
        if (begin == std::string::npos) return;
        if (text.compare(begin, 6, "[DONE]") == 0) {
            complete_ = true;
            return;
        }
        const Json json = parse_json(text.substr(begin));
        read_answer(json, record_);
        const Json& choices = field(json, "choices");
        if (choices.empty()) return;
        for (const std::uint32_t id : ids_of(choices[0])) {
            record_.tokens.push_back(id);
            record_.token_times.push_back(Clock::now());
        }
    }
};

std::string body_of(const BenchRequest& request) {
    Json body = {{"max_tokens", request.output},
                 {"temperature", request.temperature},
                 {"seed", request.seed},
                 {"ignore_eos", !request.ends_early},
                 {"return_token_ids", true}};
    if (request.beam_width > 0) {
        body["use_beam_search"] = true;
        body["n"] = request.beam_width;
    } else {
        body["stream"] = true;
        body["stream_options"] = {{"include_usage", true}};
    }
    if (request.continuation_of.empty()) {
        body["prompt"] = request.prompt;
    } else {
        body["continuation_of"] = request.continuation_of;
        body["continuation_suffix"] = request.suffix;
    }
    if (request.retain) body["retain"] = true;
    if (!request.cache_salt.empty()) body["cache_salt"] = request.cache_salt;
    return body.dump();
}

std::string refusal(int status, const std::string& body) {
    const std::string said = "status " + std::to_string(status) + ": ";
    try {
        return said + reason_of(parse_json(body));
    } catch (const std::exception&) {  // no JSON
        return said + body.substr(0, 200);
    }
}

BenchRecord post(const std::string& url, const std::string& body, bool streams) {
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
    std::string whole;
    bool has_events = false;
    request.response_handler = [&](const httplib::Response& response) {
        // A refusal is none.
        has_events = streams && response.status == 200;
        return true;
    };
    request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t,
                                   std::uint64_t) {
        if (has_events)
            events.push(data, size);
        else
            whole.append(data, size);
        return true;
    };
    try {
        const httplib::Result result = client.send(request);
        if (!result)
            record.error = "no answer: " + httplib::to_string(result.error());
        else if (result->status != 200)
            record.error = refusal(result->status, whole);
        else if (!streams)
            read_whole(whole, record);
        else if (!events.complete() && record.error.empty())
            record.error = "the stream ended early";
        // Without a token there is nothing to measure.
        if (record.error.empty() && record.tokens.empty())
            record.error = "the server tells no token_ids";
    } catch (const std::exception& error) {
        record.error = error.what();
    }
    record.finished = Clock::now();
    return record;
}

}  // namespace

void DirectClient::start(const BenchRequest& request, Done done) {
    RequestSpec spec;
    spec.prompt = request.prompt;
    spec.max_tokens = request.output;
    spec.ignore_eos = !request.ends_early;
    spec.sampling.temperature = request.temperature;
    spec.sampling.seed = request.seed;
    spec.beam_width = request.beam_width;
    spec.choice_count = std::max<std::size_t>(request.beam_width, 1);
    spec.retain = request.retain;
    spec.id = "bench-" + std::to_string(++last_id_);
    spec.cache_salt = request.cache_salt;
    if (!request.continuation_of.empty())
        spec.continuation = Continuation{request.continuation_of, request.suffix};
    engine_.submit(std::move(spec), std::make_shared<Recorder>(std::move(done)));
}

HttpClient::~HttpClient() {
    for (std::thread& thread : threads_) thread.join();
}

void HttpClient::start(const BenchRequest& request, Done done) {
    const bool streams = request.beam_width == 0;
    threads_.emplace_back([url = url_, body = body_of(request), streams, done = std::move(done)] {
        done(post(url, body, streams));
    });
}

}  // namespace engine
