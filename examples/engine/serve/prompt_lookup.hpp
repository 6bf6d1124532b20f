// Drafts for speculative decoding out of what is there already: what followed when the text ended
// before as it does now. No second model is needed.
#ifndef ENGINE_SERVE_PROMPT_LOOKUP_HPP
#define ENGINE_SERVE_PROMPT_LOOKUP_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

/// Tokens that may come next: a tree, whose tokens come after what they follow.
struct Draft {
    /// Follows nothing of the draft.
    static constexpr std::size_t root = static_cast<std::size_t>(-1);

    std::vector<std::uint32_t> tokens;
    /// For each, the number of the one that it follows, or root.
    std::vector<std::size_t> parents;

    [[nodiscard]] bool empty() const noexcept { return tokens.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return tokens.size(); }
    /// The one that follows another, or root when there is none.
    [[nodiscard]] std::size_t child(std::size_t parent, std::uint32_t token) const;
    /// The tokens of these numbers.
    [[nodiscard]] std::vector<std::uint32_t> path(const std::vector<std::size_t>& numbers) const;
    /// Whether each follows the one before it.
    [[nodiscard]] bool is_chain() const;
    /// For each token, and the one before all of them first, how many of those it follows; and in
    /// `masks` which ones, a bit each, as rkv_plan_row has it.
    [[nodiscard]] std::vector<std::size_t> depths(std::vector<std::uint64_t>& masks) const;
};

/// The most tokens of a draft that branches: a bit for each, and for the one before them.
inline constexpr std::size_t tree_limit = 63;

/// At most `count` tokens of each branch, `branches` of those, and `most` tokens in all: what
/// stands after the latest earlier places where the last three tokens stand, then after those where
/// the last two do. Empty when there is no such place.
[[nodiscard]] Draft prompt_lookup(const std::vector<std::uint32_t>& tokens, std::size_t count,
                                  std::size_t branches = 1, std::size_t most = tree_limit);

}  // namespace engine

#endif  // ENGINE_SERVE_PROMPT_LOOKUP_HPP
