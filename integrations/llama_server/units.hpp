// Amounts, as options give them and as the log shows them.
#ifndef RADIXKV_LLAMA_SERVER_UNITS_HPP
#define RADIXKV_LLAMA_SERVER_UNITS_HPP

#include "ggml.h"

#include <cstdint>
#include <limits>

namespace radixkv_server {

inline double milliseconds_since(std::int64_t start) {
    return static_cast<double>(ggml_time_us() - start) / 1000.0;
}

inline double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

/// Of an option in MiB, of which a negative number is no limit.
inline std::uint64_t bytes_of(std::int32_t given_mib) {
    return given_mib < 0 ? std::numeric_limits<std::uint64_t>::max()
                         : static_cast<std::uint64_t>(given_mib) << 20;
}

}  // namespace radixkv_server

#endif  // RADIXKV_LLAMA_SERVER_UNITS_HPP
