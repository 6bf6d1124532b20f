#include "serve/request_state.hpp"

#include <algorithm>
#include <utility>

namespace engine {

void Branch::release_pages() {
    // Not reset(): a broken cache refuses that, and takes the sequence along when it goes.
    sequence = rkv::Sequence();
    sequence_tokens = 0;
    drafted = 0;
    allocated = 0;
    longest_draft = 0;
    computed = 0;
    published_pages = 0;
    fetches = false;
    save_at = {};
}

std::unique_ptr<Branch> Branch::copy() const {
    auto made = std::make_unique<Branch>(RequestSpec(), number);
    made->tokens = tokens;
    made->text = text;
    made->logprob = logprob;
    made->latest = latest;
    made->beam_tokens = beam_tokens;
    return made;
}

void Branch::adopt(rkv::Sequence sequence_of_child, const Branch& from) {
    sequence = std::move(sequence_of_child);
    sequence_tokens = from.sequence_tokens;
    allocated = sequence_tokens;
    computed = from.computed;
    published_pages = from.published_pages;
}

Request::Request(std::uint64_t arrival, RequestSpec what, std::shared_ptr<Listener> who)
    : number(arrival), spec(std::move(what)), listener(std::move(who)) {
    branches.push_back(std::make_unique<Branch>(spec, 0));
}

bool Request::holds_pages() const {
    return std::any_of(branches.begin(), branches.end(),
                       [](const auto& branch) { return branch->holds_pages(); });
}

std::size_t Request::width() const {
    if (!branched) return spec.width();
    const auto live = std::count_if(branches.begin(), branches.end(), [](const auto& branch) {
        return branch->holds_pages() || !branch->finished;
    });
    return static_cast<std::size_t>(live);
}

bool Request::computes_prompt() const {
    return std::any_of(branches.begin(), branches.end(), [&](const auto& branch) {
        return branch->holds_pages() && branch->computed < spec.prompt.size();
    });
}

double Request::score(const Branch& branch) const {
    return beam_score(branch.logprob, generated(branch), spec.length_penalty);
}

std::vector<Branch*> Request::answer() const {
    std::vector<Branch*> order;
    for (const auto& branch : branches) order.push_back(branch.get());
    if (ranks())
        std::stable_sort(order.begin(), order.end(), [&](const Branch* a, const Branch* b) {
            return score(*a) > score(*b);
        });
    order.resize(std::min(order.size(), spec.choice_count));
    return order;
}

}  // namespace engine
