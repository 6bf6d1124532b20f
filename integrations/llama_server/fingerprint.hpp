// What a state is good for.
#ifndef RADIXKV_LLAMA_SERVER_FINGERPRINT_HPP
#define RADIXKV_LLAMA_SERVER_FINGERPRINT_HPP

#include "common.h"
#include "llama.h"

#include <array>
#include <cstdint>

namespace radixkv_server {

using Fingerprint = std::array<std::uint8_t, 32>;

/// A digest of everything that decides what the bytes of a state mean: the build of llama.cpp, the
/// model's files, those of the draft model, of adapters, of control vectors and of the projector,
/// the types of the KV cache, and what changes positions. Of a model's file its metadata and a part
/// of each tensor are read, so that a large one costs no minutes. `draft` may be NULL.
Fingerprint fingerprint_of(const common_params& params, const llama_context* target,
                           const llama_context* draft);

}  // namespace radixkv_server

#endif  // RADIXKV_LLAMA_SERVER_FINGERPRINT_HPP
