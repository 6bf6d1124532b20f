#include "chat.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

namespace example {

namespace {

// The text is not what matters: it stands for the instructions and tool descriptions that a
// deployment puts before every chat.
const char* const rules[] = {
    "You are the assistant of a small library that lends books, films and instruments.",
    "Answer in the language of the question, in one short paragraph, without lists.",
    "Say which shelf a title stands on, and whether it is lent out at present.",
    "A member may keep five titles for four weeks; an instrument counts as two titles.",
    "Fees are due from the third reminder on; name the amount only when asked for it.",
    "Never disclose what another member has borrowed, or that somebody is a member.",
    "Questions about opening hours get the hours of today and of the next day.",
    "If a title is not in the catalogue, offer the form for suggestions instead.",
    "Reservations are kept for one week; after that the next member in line is told.",
    "Members under sixteen need a signature before they borrow an instrument.",
    "Lost titles are replaced by the member, or paid for at the price of the catalogue.",
    "When you are not sure, say so, and give the telephone number of the desk.",
};

const char* const questions[] = {
    "Is there a book about the birds of the coast, and may I keep it over the holidays?",
    "My daughter would like to learn the cello. What do we need to bring along?",
    "I was reminded of a film that I returned on Monday. Could you look into that, please?",
    "Who has the second volume, and when will it be back on its shelf?",
    "Could I bring the instrument back tomorrow, an hour before you close?",
};

std::string system_prompt() {
    std::string text = "System:";
    for (const char* rule : rules) text += std::string(" ") + rule;
    return text + "\n";
}

std::string question(std::size_t chat, std::size_t turn) {
    const std::size_t count = std::size(questions);
    return "Member " + std::to_string(chat + 1) + ": " + questions[(2 * chat + turn) % count] +
           "\nAssistant:";
}

void append(Ids& to, const Ids& ids) { to.insert(to.end(), ids.begin(), ids.end()); }

}  // namespace

std::size_t Workload::longest(const Model& model) const {
    std::size_t longest = 0;
    for (std::size_t chat = 0; chat < chat_count; ++chat) {
        std::size_t count = model.tokenize(system_prompt(), true).size();
        for (std::size_t turn = 0; turn < turn_count; ++turn)
            count += model.tokenize(question(chat, turn), false).size() + reply_count;
        longest = std::max(longest, count);
    }
    return longest;
}

Round run(const Model& model, Sequence& sequence, const Workload& workload,
          const rkv_snapshot_cache_config* limits) {
    Census census;
    Round round;
    {
        std::optional<StateCache> cache;
        if (limits != nullptr) cache.emplace(*limits);
        Server server(model, sequence, cache ? &*cache : nullptr, census);
        const auto ask = [&](const Prompt& prompt, std::size_t chat, std::size_t turn, bool again) {
            Reply reply = server.complete(prompt, workload.reply_count);
            if (cache) {
                round.stats = cache->base().stats();
                round.most_bytes = std::max(round.most_bytes, round.stats.entry_bytes);
            }
            round.requests.push_back({chat, turn, again, std::move(reply)});
            return round.requests.back().reply.tokens;
        };
        const Ids system = model.tokenize(system_prompt(), true);
        std::vector<Prompt> chats(workload.chat_count, Prompt{system, {system.size()}});
        std::vector<Ids> replies(workload.chat_count);

        const auto start = std::chrono::steady_clock::now();
        for (std::size_t turn = 0; turn < workload.turn_count; ++turn) {
            for (std::size_t chat = 0; chat < workload.chat_count; ++chat) {
                Prompt& prompt = chats[chat];
                append(prompt.ids, replies[chat]);
                append(prompt.ids, model.tokenize(question(chat, turn), false));
                prompt.cuts.push_back(prompt.ids.size());
                replies[chat] = ask(prompt, chat, turn, false);
            }
        }
        for (std::size_t chat = 0; chat < workload.chat_count; ++chat)
            ask(chats[chat], chat, workload.turn_count - 1, true);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        round.seconds = took.count();
        if (cache) cache->base().check_invariants();
    }
    round.born_count = census.born_count();
    round.died_count = census.died_count();
    round.balanced = census.balanced();
    return round;
}

}  // namespace example
