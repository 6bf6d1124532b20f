#include "key.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace radixkv_server {

namespace {

std::string digest_of(const std::string& text) {
    const rkv::Digest digest = rkv::image_digest(text.data(), text.size());
    return std::string(digest.begin(), digest.end());
}

/// Ids for the tokens of an image or a sound, above those of any vocabulary.
void append_media(std::vector<std::uint32_t>& ids, const mtmd_input_chunk* chunk) {
    const std::string digest = digest_of(mtmd_input_chunk_get_id(chunk));
    const std::size_t count = mtmd_input_chunk_get_n_tokens(chunk);
    for (std::size_t at = 0; at < count; ++at) {
        // 30 bits of it at a time, over and over.
        std::uint32_t piece = 0;
        std::memcpy(&piece, digest.data() + at % 4 * sizeof piece, sizeof piece);
        ids.push_back(piece >> 2 | 1U << 30);
    }
}

}  // namespace

std::vector<std::uint32_t> ids_of(const server_tokens& tokens) {
    std::vector<std::uint32_t> ids;
    ids.reserve(tokens.size());
    while (ids.size() < tokens.size()) {
        const std::size_t at = ids.size();
        if (tokens[at] != LLAMA_TOKEN_NULL) ids.push_back(static_cast<std::uint32_t>(tokens[at]));
        else append_media(ids, tokens.find_chunk(at).get());
        if (ids.size() == at) throw std::runtime_error("an image or a sound without tokens");
    }
    return ids;
}

std::string space_of(const std::string& salt, const Adapters& adapters) {
    std::string active;
    for (const auto& [number, scale] : adapters) {
        if (scale == 0.0F) continue;
        std::array<char, sizeof number + sizeof scale> bytes{};
        std::memcpy(bytes.data(), &number, sizeof number);
        std::memcpy(bytes.data() + sizeof number, &scale, sizeof scale);
        active.append(bytes.data(), bytes.size());
    }
    if (salt.empty() && active.empty()) return {};
    return digest_of(salt) + digest_of(active);
}

rkv::Namespace namespace_of(const std::string& space) {
    std::array<std::uint8_t, 32> salt{};
    std::copy_n(space.begin(), std::min(space.size(), salt.size()), salt.begin());
    return rkv::Namespace().salt(salt);
}

}  // namespace radixkv_server
