// What nobody can guess.
#ifndef ENGINE_HTTP_RANDOM_HEX_HPP
#define ENGINE_HTTP_RANDOM_HEX_HPP

#include <cstdio>
#include <random>
#include <string>

namespace engine {

/// 128 random bits as 32 digits.
[[nodiscard]] inline std::string random_hex() {
    std::random_device device;
    std::string digits;
    for (int i = 0; i < 4; ++i) {
        char text[16];
        std::snprintf(text, sizeof text, "%08x", device());
        digits += text;
    }
    return digits;
}

}  // namespace engine

#endif  // ENGINE_HTTP_RANDOM_HEX_HPP
