// llama-server's prompt cache, over radixkv's snapshot cache.
#ifndef RADIXKV_LLAMA_SERVER_PROMPT_CACHE_HPP
#define RADIXKV_LLAMA_SERVER_PROMPT_CACHE_HPP

#include "entry.hpp"
#include "fingerprint.hpp"
#include "key.hpp"

#include <radixkv.hpp>

#include "serve/remote_store.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace radixkv_server {

/// Keeps in memory, until the request has its slot, what was read for it.
class Fetched {
public:
    void add(rkv::SnapshotPin pin) { pins_.push_back(std::move(pin)); }
    void release() noexcept { pins_.clear(); }

private:
    std::vector<rkv::SnapshotPin> pins_;
};

/// In the seat of llama-server's own, on the thread of its slots. What may be called elsewhere says
/// so. Nothing throws: when the cache fails, the server goes on as if nothing were found.
class PromptCache final : public server_prompt_cache {
public:
    using Clock = std::chrono::steady_clock;

    /// What `server_context` knows when a model is loaded.
    struct Setup {
        const common_params* params;
        llama_context* target;
        /// NULL without a draft model.
        llama_context* draft;
        bool has_media;
    };

    /// llama-server's own with --no-cache-radix, or when this one can't be made.
    static std::unique_ptr<server_prompt_cache> make(const Setup& setup);
    explicit PromptCache(const Setup& setup);
    ~PromptCache() override;
    PromptCache(const PromptCache&) = delete;
    PromptCache& operator=(const PromptCache&) = delete;

    // Its own verbs.

    /// Where the state of a prompt is to be written; NULL when it is kept already, or can't be.
    server_prompt_cache_state* alloc(const server_prompt& prompt, std::size_t state_size_main,
                                     std::size_t state_size_drft) override;
    /// The state could not be written: alloc() never happened.
    void drop() override;
    /// Puts the state of the longest prefix of `tokens_new` into a slot, if it is longer than what
    /// the slot has. Both belong to `prompt.space`. False when the slot is to be cleared.
    bool load(server_prompt& prompt, const server_tokens& tokens_new, llama_context* ctx_tgt,
              llama_context* ctx_dft, std::int32_t id_slot) override;
    void update() override;
    /// Bytes of all states in memory.
    [[nodiscard]] std::size_t size() const override;

    // Beyond them.

    /// Whether load() would find more than the slot has.
    bool is_better(const server_prompt& prompt, const server_tokens& tokens_new,
                   llama_context* ctx_tgt, std::int32_t id_slot);
    /// Whether the state of a prompt, whose slot was offered last, is here or below.
    bool keeps(const server_prompt& prompt);
    /// Whether a slot that keeps only so many of its tokens is to be kept before.
    static bool loses_much(const server_prompt& prompt, std::size_t kept_count);
    /// Whose states may answer a request. Any thread.
    std::string space(const task_params& params) const;
    /// The adapters of requests that name none, and what they are from now on.
    void set_adapters(const std::vector<common_adapter_lora_info>& adapters);
    /// When a request that comes now has waited as long as --cache-disk-wait says. Any thread.
    [[nodiscard]] static Clock::time_point deadline();
    /// Brings what memory lacks into it, for a request that waits for it here: on its own thread,
    /// until the deadline at most, and only while `should_stop` is false.
    std::shared_ptr<Fetched> fetch(const server_tokens& tokens, const task_params& params,
                                   Clock::time_point deadline,
                                   const std::function<bool()>& should_stop);
    /// Nothing to do: what waited for room on the disk is written when there is some, and what a
    /// longer prompt takes the place of goes.
    void tick();
    /// The model was loaded again, perhaps another.
    void reopen(const Setup& setup);
    /// Whether anything outlives the server.
    [[nodiscard]] bool has_below() const noexcept { return has_below_; }
    /// Writes what is not on disk or in the remote store yet, and lets go of both.
    void close();

private:
    struct Found {
        rkv::SnapshotPin pin;
        Parts parts;
        std::size_t common = 0;
        std::size_t usable = 0;
        bool is_copy = false;
    };
    /// A request, as the cache knows it.
    struct Query {
        const server_tokens& tokens;
        std::vector<std::uint32_t> ids;
        rkv::Namespace space;
    };
    /// A prompt on its way to the disk, with what it takes the place of when it is there.
    struct Longer {
        std::vector<std::uint32_t> ids;
        rkv::Namespace space;
        /// Lengths of its beginnings.
        std::vector<std::size_t> counts;
        /// Prompts that were not written, before it came.
        std::uint64_t unwritten_count;
        /// Prompts that had left the disk, once it had come.
        std::uint64_t gone_count;
    };
    [[nodiscard]] static Query query_of(const server_tokens& tokens, const std::string& space);
    void attach(const Setup& setup);
    void insert(std::unique_ptr<Entry> entry);
    /// Entries that a longer one makes superfluous, by their lengths.
    [[nodiscard]] std::vector<std::size_t> beginnings_of(const Entry& entry, const Query& query);
    void remove(const std::vector<std::size_t>& counts, const std::vector<std::uint32_t>& ids,
                const rkv::Namespace& space);
    /// Removes what longer prompts take the place of, if those are on disk after so long. False
    /// when something is not.
    bool remove_replaced(std::uint64_t wait_ms);
    /// The same of those that are there already; throws nothing.
    void try_remove_replaced();
    /// Prompts that the disk refused, or has no room for, since it was attached.
    [[nodiscard]] std::uint64_t unwritten_count();
    /// Rises with each prompt that leaves the disk, and otherwise stays.
    [[nodiscard]] std::uint64_t gone_count();
    [[nodiscard]] bool has(const server_prompt& prompt, const Query& query);
    /// What the cache has for some ids, and what that is to the query.
    [[nodiscard]] std::optional<Found> find(const Query& query, const rkv::TokenView& ids,
                                            std::uint32_t flags);
    /// The entry that can be cut last within the query.
    [[nodiscard]] std::optional<Found> find_by_cut(const Query& query);
    /// Notes where a state that begins there can be cut: anywhere, or behind its window and at its
    /// checkpoints.
    void note_cuts(const server_prompt& prompt, llama_pos begin, const Query& query);
    [[nodiscard]] std::optional<Found> best(const Query& query);
    [[nodiscard]] std::optional<Found> best_for(const server_prompt& prompt, const Query& query,
                                                llama_context* ctx_tgt, std::int32_t id_slot);
    /// Whether a slot has room for a state.
    [[nodiscard]] bool has_room(const Parts& parts) const;
    [[nodiscard]] bool restore(const Found& found, server_prompt& prompt, llama_context* ctx_tgt,
                               llama_context* ctx_dft, std::int32_t id_slot) const;
    [[nodiscard]] std::vector<rkv_snapshot_part> parts_of(const rkv::SnapshotPin& pin) const;
    /// `has_asked` says whether the remote store was asked for the prompt, which is done once.
    rkv::SnapshotPin take(const Query& query, std::uint32_t flags, Clock::time_point deadline,
                          const std::function<bool()>& should_stop, bool& has_asked);
    void failed(const char* what, const std::exception& error);
    /// Where the saved state of a prompt begins.
    [[nodiscard]] llama_pos begin_of(const server_prompt& prompt) const;
    /// Outlives what has it below.
    std::optional<engine::RemoteStore> remote_;
    rkv::SnapshotCache cache_;
    /// Where not each state can be cut anywhere: the ids of an entry, by the tokens up to where it
    /// can be. In memory alone; what it names may be gone.
    rkv::TypedSnapshotCache<std::shared_ptr<const std::vector<std::uint32_t>>> cuts_;
    std::unique_ptr<Entry> pending_;
    /// In the order in which they came.
    std::vector<Longer> longer_;
    std::uint64_t byte_limit_;
    /// As the server counts with it: 0 where all layers see all positions, and with --swa-full.
    llama_pos window_ = 0;
    /// Positions before the window that are saved with it, so that an end can be cut off.
    llama_pos before_window_ = 0;
    bool has_media_ = false;
    /// Whether the draft model's memory may end a position before the target's (EAGLE3).
    bool has_late_draft_ = false;
    /// Whether each state has all positions, so that any end can be cut off.
    bool is_cuttable_ = false;
    std::optional<Fingerprint> fingerprint_;
    /// Whether there is a directory or a remote store.
    std::atomic<bool> has_below_ = false;
    /// Positions that a slot has room for.
    std::atomic<std::size_t> context_tokens_ = 0;
    std::atomic<bool> is_broken_ = false;
    mutable std::mutex adapters_lock_;
    Adapters adapters_;
};

}  // namespace radixkv_server

#endif  // RADIXKV_LLAMA_SERVER_PROMPT_CACHE_HPP
