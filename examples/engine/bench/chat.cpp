#include "bench/chat.hpp"

#include "bench/library.hpp"
#include "bench/table.hpp"
#include "serve/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <future>
#include <memory>
#include <stdexcept>
#include <utility>

namespace engine {

namespace {

using Json = nlohmann::json;

// Columns of a line.
constexpr std::size_t name_width = 6, question_width = 38, answer_width = 40;

/// The beginning of a text as one line of at most so many characters.
std::string first_words(const std::string& text, std::size_t width) {
    std::string line;
    std::size_t columns = 0;
    std::size_t kept = 0;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        const bool continues_character = (byte & 0xC0U) == 0x80;
        if (!continues_character && columns++ == width) return line.substr(0, kept) + "...";
        line += byte < ' ' || byte == 0x7F ? ' ' : c;
        if (columns <= width - 3) kept = line.size();
    }
    return line;
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

std::string padded(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<std::uint32_t>& tokens) {
    Utf8Stream stream;
    std::string text;
    for (const std::uint32_t id : tokens) text += stream.push(tokenizer.decode(id));
    return text + stream.finish();
}

std::size_t common_beginning(const std::vector<std::uint32_t>& a,
                             const std::vector<std::uint32_t>& b) {
    const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return static_cast<std::size_t>(ends.first - a.begin());
}

/// Sends a request and waits for its answer.
BenchRecord ask(Client& client, const BenchRequest& request) {
    // Shared with the request, which may still be at its last call here when the answer is.
    const auto promise = std::make_shared<std::promise<BenchRecord>>();
    client.start(request,
                 [promise](BenchRecord record) { promise->set_value(std::move(record)); });
    BenchRecord record = promise->get_future().get();
    if (!record.error.empty()) throw std::runtime_error("chat: " + record.error);
    if (record.token_times.empty()) throw std::runtime_error("chat: an answer without tokens");
    return record;
}

std::string describe(const ChatScript& script, std::size_t shared) {
    return std::to_string(script.users.size()) + " users take turns, one system prompt of " +
           std::to_string(shared) + " tokens, up to " + std::to_string(script.max_output) +
           " to generate";
}

/// The users' chats, as far as they have come.
class Conversations {
public:
    Conversations(const ChatScript& script, const Tokenizer& tokenizer)
        : tokenizer_(tokenizer),
          messages_(script.users.size(), Json::array({message("system", script.system)})),
          max_output_(script.max_output) {}

    BenchRequest ask(std::size_t user, const std::string& question) {
        messages_[user].push_back(message("user", question));
        BenchRequest request;
        request.prompt = tokenizer_.encode(tokenizer_.chat(messages_[user].dump()));
        request.output = max_output_;
        request.ends_early = true;
        for (const auto& before : texts_)
            request.shared = std::max(request.shared, common_beginning(before, request.prompt));
        return request;
    }
    /// Returns the answer's text.
    std::string answer(std::size_t user, const BenchRequest& request,
                       const std::vector<std::uint32_t>& tokens) {
        texts_.push_back(request.prompt);
        texts_.back().insert(texts_.back().end(), tokens.begin(), tokens.end());
        std::string text = text_of(tokenizer_, tokens);
        messages_[user].push_back(message("assistant", text));
        return text;
    }

private:
    const Tokenizer& tokenizer_;
    std::vector<Json> messages_;
    std::size_t max_output_;
    /// Every prompt with its answer.
    std::vector<std::vector<std::uint32_t>> texts_;

    static Json message(const char* role, const std::string& content) {
        return {{"role", role}, {"content", content}};
    }
};

}  // namespace

ChatScript library_chat(const WorkloadOptions& options) {
    ChatScript script;
    script.system = library_text();
    script.users = {{"Ann",
                     {"When are you open on Saturday?", "And on Sunday?",
                      "How long may I keep a film?"}},
                    {"Ben",
                     {"How many books can I borrow at once?", "What does a late book cost?",
                      "Can I renew it by phone?"}},
                    {"Cleo",
                     {"Do you have rooms for a study group?", "How do I reserve one?",
                      "May we eat there?"}}};
    script.max_output = options.max_output > 0 ? std::min<std::size_t>(options.max_output, 32) : 32;
    for (const ChatScript::User& user : script.users) script.turn_count += user.questions.size();
    if (options.request_count > 0)
        script.turn_count = std::min(script.turn_count, options.request_count);
    return script;
}

ChatRun run_chat(const ChatScript& script, Client& client, const Tokenizer& tokenizer,
                 std::string label, const std::function<void(const std::string&)>& say) {
    Conversations conversations(script, tokenizer);
    ChatRun chat{{"chat", "", {}}, {std::move(label), Clock::now(), {}}};
    say("chat, " + chat.run.label + ": question, time to first token, first words of the answer\n");
    for (std::size_t turn = 0; chat.run.records.size() < script.turn_count; ++turn) {
        const std::size_t index = turn % script.users.size();
        const ChatScript::User& user = script.users[index];
        const std::size_t round = turn / script.users.size();
        if (round >= user.questions.size()) continue;
        const std::string& question = user.questions[round];
        say("  " + padded(user.name, name_width) + padded(question, question_width));
        BenchRequest request = conversations.ask(index, question);
        const Clock::time_point sent = Clock::now();
        request.arrival = seconds_between(chat.run.start, sent);
        BenchRecord record = ask(client, request);
        const std::string text = conversations.answer(index, request, record.tokens);
        const double first = seconds_between(sent, record.token_times.front());
        say(format("%7.0f ms  ", first * 1e3) + first_words(text, answer_width) + "\n");
        chat.workload.requests.push_back(std::move(request));
        chat.run.records.push_back(std::move(record));
    }
    const std::vector<BenchRequest>& requests = chat.workload.requests;
    chat.workload.description =
        describe(script, requests.size() > 1 ? requests[1].shared : requests[0].prompt.size());
    return chat;
}

}  // namespace engine
