// Drafts for speculative decoding out of what is there already: what followed the last time that
// the text ended as it does now. No second model is needed.
#ifndef ENGINE_SERVE_PROMPT_LOOKUP_HPP
#define ENGINE_SERVE_PROMPT_LOOKUP_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

/// At most `count` tokens that may come next: those after the latest earlier place where the last
/// three tokens stand, or else the last two. Empty when there is no such place.
[[nodiscard]] std::vector<std::uint32_t> prompt_lookup(const std::vector<std::uint32_t>& tokens,
                                                       std::size_t count);

}  // namespace engine

#endif  // ENGINE_SERVE_PROMPT_LOOKUP_HPP
