// The text that visitors of a library chat about; the page's chats begin with it too.
#ifndef ENGINE_BENCH_LIBRARY_HPP
#define ENGINE_BENCH_LIBRARY_HPP

#include <string>

namespace engine {

/// library.txt: 651 tokens of SmolLM2.
[[nodiscard]] std::string library_text();

}  // namespace engine

#endif  // ENGINE_BENCH_LIBRARY_HPP
