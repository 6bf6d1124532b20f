// Prompts and users as the snapshot cache knows them: token ids, namespaces.
#ifndef RADIXKV_LLAMA_SERVER_KEY_HPP
#define RADIXKV_LLAMA_SERVER_KEY_HPP

#include "server-common.h"

#include <radixkv.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace radixkv_server {

/// The ids of a prompt. What stands for an image or a sound is made of its digest: it leads to
/// candidates, which are then compared as llama-server compares prompts.
std::vector<std::uint32_t> ids_of(const server_tokens& tokens);

/// For lookups of states whose end can be taken away.
constexpr std::uint32_t trimmable = RKV_SNAPSHOT_MATCH_TRIMMABLE;

/// The first ids of a prompt.
inline rkv::TokenView first(const std::vector<std::uint32_t>& ids, std::size_t count) {
    return {rkv::span<const std::uint32_t>(ids.data(), count), {}};
}

/// Adapters by number, with their scales.
using Adapters = std::vector<std::pair<int, float>>;

/// Whose states may answer a request: 32 bytes, or none for the one that says nothing.
std::string space_of(const std::string& salt, const Adapters& adapters);

/// The namespace of a space.
rkv::Namespace namespace_of(const std::string& space);

}  // namespace radixkv_server

#endif  // RADIXKV_LLAMA_SERVER_KEY_HPP
