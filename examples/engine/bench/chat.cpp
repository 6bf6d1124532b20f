#include "bench/chat.hpp"

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

constexpr const char* library_page =
    "You are the assistant of the Riverside Public Library. Answer the questions of visitors in "
    "one short sentence, in a friendly way, and only with what this page says.\n\n"
    "Opening hours. The library is open from 9 am to 8 pm on Monday, Tuesday, Wednesday and "
    "Thursday, from 9 am to 6 pm on Friday, and from 10 am to 4 pm on Saturday. On Sunday and on "
    "public holidays it is closed. The reading room on the first floor closes fifteen minutes "
    "before the library does. The box for returns beside the main entrance is open day and "
    "night.\n\n"
    "Library cards. Everybody who lives, works or studies in the county gets a library card for "
    "free; bring a photo identity card and a letter that shows your address. Children under "
    "twelve need the signature of a parent. A lost card is replaced for 3 dollars. A card is "
    "valid for two years and is renewed at any desk.\n\n"
    "Borrowing. With a card you can borrow up to 20 books, 5 films and 5 games at once. Books may "
    "be kept for four weeks, films and games for one week. Magazines, maps and the books of the "
    "local history collection stay in the library. Books can be renewed twice, on the website, by "
    "phone or at a desk, unless somebody else has reserved them.\n\n"
    "Fees. A book that comes back late costs 10 cents a day, a film or a game 50 cents a day, 10 "
    "dollars at most. Children pay no late fees. Who owes more than 15 dollars cannot borrow "
    "anything until the fees are paid. A lost or damaged book is paid for at its price, plus 5 "
    "dollars for the work.\n\n"
    "Reservations. Any book can be reserved on the website or at a desk. When it is there you get "
    "an e-mail, and it is kept for you on the shelf behind the front desk for seven days. Books "
    "that we do not have can be ordered from other libraries for 2 dollars each; that takes about "
    "two weeks.\n\n"
    "Rooms. Four study rooms for up to six people are on the second floor. They are free, can be "
    "booked on the website up to two weeks ahead, and for at most three hours a day. The large "
    "hall has 120 seats and can be rented by clubs and schools. In the study rooms you may drink "
    "water but not eat; the cafe beside the entrance sells coffee, soup and sandwiches.\n\n"
    "Computers. Twenty computers stand on the ground floor; with a card you may use them for two "
    "hours a day. Printing costs 15 cents a page in black and white and 40 cents in colour. "
    "Scanning to a memory stick is free. The wireless network is called Riverside Guest and needs "
    "no password.\n\n"
    "Events. A story hour for children from three to six is on Wednesday at 10 am. The book club "
    "meets on the first Thursday of each month at 6 pm. Free lessons in using a computer are on "
    "Tuesday at 2 pm; please register at the front desk.";

}  // namespace

ChatScript library_chat(const WorkloadOptions& options) {
    ChatScript script;
    script.system = library_page;
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
