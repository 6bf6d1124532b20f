#include "serve/prompt_lookup.hpp"

#include <algorithm>

namespace engine {

namespace {

constexpr std::size_t longest_match = 3, shortest_match = 2;
/// Places that are looked at for each of those: where a text repeats itself most say the same.
constexpr std::size_t most_places = 256;

using Place = std::vector<std::uint32_t>::const_iterator;

/// Adds a branch as far as the draft has room. Whether it was another one.
bool add(Draft& draft, Place from, Place to, std::size_t limit) {
    std::size_t at = Draft::root;
    bool is_new = false;
    for (; from != to; ++from) {
        const std::size_t known = draft.child(at, *from);
        if (known == Draft::root) {
            if (draft.size() == limit) break;
            draft.tokens.push_back(*from);
            draft.parents.push_back(at);
            at = draft.size() - 1;
            is_new = true;
        } else {
            at = known;
        }
    }
    return is_new;
}

}  // namespace

std::size_t Draft::child(std::size_t parent, std::uint32_t token) const {
    for (std::size_t i = 0; i < size(); ++i)
        if (parents[i] == parent && tokens[i] == token) return i;
    return root;
}

std::vector<std::uint32_t> Draft::path(const std::vector<std::size_t>& numbers) const {
    std::vector<std::uint32_t> path;
    for (const std::size_t at : numbers) path.push_back(tokens[at]);
    return path;
}

bool Draft::is_chain() const {
    for (std::size_t i = 0; i < size(); ++i)
        if (parents[i] != i - 1) return false;
    return true;
}

std::vector<std::size_t> Draft::depths(std::vector<std::uint64_t>& masks) const {
    std::vector<std::size_t> depths(1, 0);
    masks.assign(1, 0);
    for (const std::size_t parent : parents) {
        const std::size_t follows = parent + 1;  // 0 for the one before the draft
        masks.push_back(masks[follows] | std::uint64_t{1} << follows);
        depths.push_back(depths[follows] + 1);
    }
    return depths;
}

Draft prompt_lookup(const std::vector<std::uint32_t>& tokens, std::size_t count,
                    std::size_t branches, std::size_t most) {
    Draft draft;
    const std::size_t limit = std::min(most, branches == 1 ? count : tree_limit);
    for (std::size_t length = longest_match; length >= shortest_match; --length) {
        if (tokens.size() <= length) continue;
        const auto last = tokens.end() - static_cast<std::ptrdiff_t>(length);
        // Not the end itself: something must follow.
        auto end = tokens.end() - 1;
        for (std::size_t places = 0; branches > 0 && places < most_places; ++places) {
            const auto found = std::find_end(tokens.begin(), end, last, tokens.end());
            if (found == end) break;
            const auto next = found + static_cast<std::ptrdiff_t>(length);
            const auto left = static_cast<std::size_t>(tokens.end() - next);
            const auto after = next + static_cast<std::ptrdiff_t>(std::min(count, left));
            if (add(draft, next, after, limit)) --branches;
            end = next - 1;
        }
    }
    return draft;
}

}  // namespace engine
