// What the cache keeps of a prompt, and how much of it serves another.
#ifndef RADIXKV_LLAMA_SERVER_ENTRY_HPP
#define RADIXKV_LLAMA_SERVER_ENTRY_HPP

#include "common.h"
#include "server-task.h"

#include <radixkv.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace radixkv_server {

/// Of the form in which entries are written. 1 had checkpoints whose last token was another's, 2
/// those of the prompt before an embedding.
constexpr std::uint32_t entry_version = 3;

/// How many positions before a window are saved with it, if there are windows: as many as a slot
/// has room for at any time, whatever the others have. So what was just computed can be cut off
/// again, of a state as of a slot. `draft` may be NULL.
std::uint32_t saved_before_window(const common_params& params, const llama_context* target,
                                  const llama_context* draft);

/// A prompt with the state after it, in parts that can be written as they are: a header, with the
/// tokens; the state; that of the draft model; and of each checkpoint three.
class Entry {
public:
    Entry(const server_prompt& prompt, llama_pos pos_min, std::size_t state_bytes,
          std::size_t draft_bytes);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    /// To be filled.
    [[nodiscard]] server_prompt_cache_state& state() noexcept { return state_; }
    [[nodiscard]] const server_prompt& prompt() const noexcept { return state_.prompt; }
    /// Where its first position is, in the model's memory.
    [[nodiscard]] llama_pos pos_min() const noexcept { return pos_min_; }
    [[nodiscard]] std::vector<rkv_snapshot_part> parts() const;
    /// The bytes of all parts, of an entry that is not made yet.
    [[nodiscard]] static std::uint64_t bytes_of(const server_prompt& prompt,
                                                std::uint64_t state_bytes);

private:
    server_prompt_cache_state state_;
    llama_pos pos_min_;
    std::vector<std::uint8_t> header_;
};

/// The parts of an entry, read again. They belong to the cache.
struct Parts {
    struct Checkpoint {
        std::int64_t n_tokens = 0;
        llama_pos pos_min = 0;
        llama_pos pos_max = 0;
        rkv_snapshot_part target{}, draft{}, spec{};
    };
    server_tokens tokens;
    llama_pos pos_min = 0;
    rkv_snapshot_part state{}, draft{};
    std::vector<Checkpoint> checkpoints;

    /// Throws when they are no entry.
    static Parts read(const std::vector<rkv_snapshot_part>& parts, bool has_media);
    /// The bytes of all states.
    [[nodiscard]] std::uint64_t state_bytes() const noexcept;
    /// Copies of the checkpoints.
    [[nodiscard]] std::list<common_prompt_checkpoint> copy_checkpoints() const;
};

/// An entry is read for a part of it when that is at least one of so many of its tokens: reading a
/// token costs a small part of computing it.
constexpr std::size_t read_cost = 16;

/// Whether to read an entry of so many tokens for the sake of `gained` of them. The first is
/// llama-server's own rule.
inline bool is_worth(std::size_t common, std::size_t gained, std::size_t entry_tokens) {
    return gained > 0 && (common * 4 >= entry_tokens || gained * read_cost >= entry_tokens);
}

/// How many tokens of a request llama-server need not compute after a prompt, of which the request
/// begins with the first `common`: as update_slots() finds out when it begins with a request. Where
/// the memory can't be cut there, a checkpoint serves.
template <class Checkpoints>
std::size_t usable(const server_tokens& tokens, const Checkpoints& checkpoints, llama_pos pos_min,
                   llama_pos window, std::size_t common, bool is_whole_request) {
    if (common == 0) return 0;
    const llama_pos next = tokens.pos_next(static_cast<std::int64_t>(common));
    const llama_pos wanted = std::max(0, next - window - (is_whole_request ? 1 : 0));
    if (pos_min == 0 || pos_min < wanted) return common;
    for (auto it = checkpoints.rbegin(); it != checkpoints.rend(); ++it) {
        if (it->pos_max > next || (it->pos_min >= wanted && it->pos_min != 0)) continue;
        // Of a window it has no positions that a token before its last one sees.
        const auto most = static_cast<std::int64_t>(common) + (is_whole_request ? 0 : 1);
        if (it->n_tokens > most) continue;
        const llama_pos end = std::min(next, it->pos_max + 1);
        return std::min(tokens.size_up_to_pos(end), static_cast<std::size_t>(it->n_tokens));
    }
    return 0;
}

}  // namespace radixkv_server

#endif  // RADIXKV_LLAMA_SERVER_ENTRY_HPP
