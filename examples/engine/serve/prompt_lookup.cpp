#include "serve/prompt_lookup.hpp"

#include <algorithm>

namespace engine {

namespace {

constexpr std::size_t longest_match = 3, shortest_match = 2;

}  // namespace

std::vector<std::uint32_t> prompt_lookup(const std::vector<std::uint32_t>& tokens,
                                         std::size_t count) {
    for (std::size_t length = longest_match; length >= shortest_match; --length) {
        if (tokens.size() <= length) continue;
        const auto last = tokens.end() - static_cast<std::ptrdiff_t>(length);
        // Not the end itself: something must follow.
        const auto found = std::find_end(tokens.begin(), tokens.end() - 1, last, tokens.end());
        if (found == tokens.end() - 1) continue;
        const auto next = found + static_cast<std::ptrdiff_t>(length);
        const auto most = static_cast<std::size_t>(tokens.end() - next);
        return {next, next + static_cast<std::ptrdiff_t>(std::min(count, most))};
    }
    return {};
}

}  // namespace engine
