// The page as a browser gets it: one file, put together from those of this folder.
#ifndef ENGINE_PAGE_PAGE_HPP
#define ENGINE_PAGE_PAGE_HPP

#include <string>

namespace engine {

/// The page. Only the scripts that bear the nonce are its own: a new one for each answer, which its
/// Content-Security-Policy names.
[[nodiscard]] std::string page_html(const std::string& nonce);

}  // namespace engine

#endif  // ENGINE_PAGE_PAGE_HPP
