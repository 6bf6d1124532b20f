#include "prompt_cache.hpp"

#include "options.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace radixkv_server {

namespace {

/// For the lists of ids that lead to where states can be cut, counted as note_cuts() does.
constexpr std::uint64_t cut_bytes = 64U << 20;

/// Places before a window that are noted as such.
constexpr llama_pos cut_steps = 8;

rkv_snapshot_cache_config config_of(std::uint64_t byte_limit) {
    rkv_snapshot_cache_config config = rkv::SnapshotCache::config();
    config.byte_limit = byte_limit;
    config.entry_limit = 1U << 20;
    return config;
}

}  // namespace

std::unique_ptr<server_prompt_cache> PromptCache::make(const Setup& setup) {
    const common_params& params = *setup.params;
    if (options().is_enabled) {
        try {
            return std::make_unique<PromptCache>(setup);
        } catch (const std::exception& error) {
            SRV_ERR("radixkv cannot be used: %s\n", error.what());
        }
    }
    if (options().has_below())
        SRV_WRN("%s", "--cache-disk and --cache-remote require --cache-radix, ignored\n");
    return std::make_unique<server_prompt_cache>(params.cache_ram_mib,
                                                 llama_n_ctx(setup.target));
}

PromptCache::PromptCache(const Setup& setup)
    : server_prompt_cache(setup.params->cache_ram_mib, 0),
      cache_(config_of(bytes_of(setup.params->cache_ram_mib))),
      cuts_(config_of(cut_bytes)),
      byte_limit_(bytes_of(setup.params->cache_ram_mib)) {
    reopen(setup);
}

PromptCache::~PromptCache() { close(); }

void PromptCache::reopen(const Setup& setup) {
    const llama_model* model = llama_get_model(setup.target);
    window_ = setup.params->swa_full ? 0 : llama_model_n_swa(model);
    before_window_ = static_cast<llama_pos>(
        saved_before_window(*setup.params, setup.target, setup.draft));
    state_flags = LLAMA_STATE_SEQ_FLAGS_BEFORE_WINDOW(before_window_);
    has_media_ = setup.has_media;
    context_tokens_ = llama_n_ctx_seq(setup.target);
    const std::vector<common_speculative_type>& types = setup.params->speculative.types;
    has_late_draft_ = setup.draft != nullptr &&
                      std::find(types.begin(), types.end(),
                                COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3) != types.end();
    is_cuttable_ = window_ == 0 && !llama_model_is_recurrent(model) &&
                   !llama_model_is_hybrid(model);
    set_adapters(setup.params->lora_adapters);
    try {
        std::optional<Fingerprint> now;
        std::string why;
        try {
            now = fingerprint_of(*setup.params, setup.target, setup.draft);
        } catch (const std::exception& error) {
            why = error.what();
        }
        if (now && now == fingerprint_) return;
        // What was kept is another model's, or may be.
        close();
        cache_.clear();
        cuts_.base().clear();
        fingerprint_ = now;
        if (!now) throw std::runtime_error(why);
        if (options().has_below()) attach(setup);
    } catch (const std::exception& error) {
        if (options().has_below())
            SRV_WRN("prompts are kept in memory alone: %s\n", error.what());
    }
}

void PromptCache::failed(const char* what, const std::exception& error) {
    const auto* ours = dynamic_cast<const rkv::Error*>(&error);
    if (ours != nullptr && ours->status() >= 900) is_broken_ = true;
    SRV_WRN("prompt cache, %s: %s%s\n", what, error.what(),
            is_broken_ ? "; the server goes on without it" : "");
}

PromptCache::Query PromptCache::query_of(const server_tokens& tokens, const std::string& space) {
    return {tokens, ids_of(tokens), namespace_of(space)};
}

std::vector<rkv_snapshot_part> PromptCache::parts_of(const rkv::SnapshotPin& pin) const {
    std::size_t count = 0;
    rkv::check(rkv_snapshot_cache_read_parts(cache_.get(), pin.get(), nullptr,
                                             sizeof(rkv_snapshot_part), 0, &count));
    std::vector<rkv_snapshot_part> parts(count);
    rkv::check(rkv_snapshot_cache_read_parts(cache_.get(), pin.get(), parts.data(),
                                             sizeof(rkv_snapshot_part), count, &count));
    return parts;
}

std::optional<PromptCache::Found> PromptCache::find(const Query& query, const rkv::TokenView& ids,
                                                    std::uint32_t flags) {
    auto result = rkv::sized<rkv_snapshot_cache_match_result>();
    rkv::check(rkv_snapshot_cache_match(cache_.get(), query.space.get(), ids.get(), flags,
                                        &result));
    if (result.pin == 0) return std::nullopt;
    Found found;
    found.pin = cache_.adopt_pin(result);
    found.is_copy = result.is_copy != 0;
    found.parts = Parts::read(parts_of(found.pin), has_media_);
    // Compared as llama-server does it: images by their names, and never within one.
    found.common = found.parts.tokens.get_common_prefix(query.tokens);
    found.usable = usable(found.parts.tokens, found.parts.checkpoints, found.parts.pos_min, window_,
                          found.common, found.common == query.tokens.size());
    return found;
}

std::optional<PromptCache::Found> PromptCache::best(const Query& query) {
    const rkv::TokenView ids = first(query.ids, query.ids.size());
    std::optional<Found> found = find(query, ids, trimmable);
    const auto take = [&found](std::optional<Found> other) {
        if (other && (!found || other->usable > found->usable)) found = std::move(other);
    };
    // Where the state can't be cut at once, a shorter one that ends in time may serve better, or
    // one that has a later checkpoint.
    if (!found || found->usable < found->common) take(find(query, ids, 0));
    if (!is_cuttable_ && found && found->usable < found->common) take(find_by_cut(query));
    return found;
}

std::optional<PromptCache::Found> PromptCache::find_by_cut(const Query& query) {
    const rkv::TokenView ids = first(query.ids, query.ids.size());
    while (const auto named = cuts_.match(ids, query.space, trimmable)) {
        const std::vector<std::uint32_t>& entry = **named;
        std::optional<Found> found = find(query, first(entry, entry.size()), 0);
        if (found && found->parts.tokens.size() == entry.size()) return found;
        cuts_.base().remove(first(entry, named.token_count()), query.space);
    }
    return std::nullopt;
}

void PromptCache::note_cuts(const server_prompt& prompt, llama_pos begin, const Query& query) {
    const auto ids = std::make_shared<const std::vector<std::uint32_t>>(query.ids);
    std::vector<std::size_t> places;
    const auto add_first = [&](std::size_t end) {
        // Some serve only those who have one token more in common.
        for (std::size_t count = end; count <= end + 1 && count < ids->size(); ++count)
            if (usable(prompt.tokens, prompt.checkpoints, begin, window_, count, false) > 0)
                return places.push_back(count);
    };
    if (begin == 0) {
        places.push_back(ids->size());
    } else {
        for (const common_prompt_checkpoint& checkpoint : prompt.checkpoints)
            add_first(prompt.tokens.size_up_to_pos(checkpoint.pos_max + 1));
    }
    if (begin != 0 && window_ != 0) {
        // From there on each end can be cut off. What is noted below it serves as well as what is
        // not.
        const llama_pos end = prompt.tokens.pos_next();
        const llama_pos step = std::max(1, before_window_ / cut_steps);
        for (llama_pos at = begin + window_; at < end; at += step)
            add_first(prompt.tokens.size_up_to_pos(at));
    }
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    // They share the list, and one that is left alone, where a longer prompt took the other places,
    // has it still: each is counted with a quarter of it, so that no more than four times what is
    // counted is there.
    const std::size_t bytes = ids->size() * sizeof(ids->front());
    const std::size_t share = bytes / std::clamp<std::size_t>(places.size(), 1, 4);
    const std::uint32_t flags = begin == 0 ? RKV_SNAPSHOT_INSERT_TRIMMABLE : 0;
    for (const std::size_t count : places)
        cuts_.insert(first(query.ids, count), ids, share, std::nullopt, query.space, flags);
}

std::optional<PromptCache::Found> PromptCache::best_for(const server_prompt& prompt,
                                                        const Query& query, llama_context* ctx_tgt,
                                                        std::int32_t id_slot) {
    const std::size_t common = prompt.tokens.get_common_prefix(query.tokens);
    const std::size_t has =
        usable(prompt.tokens, prompt.checkpoints,
               llama_memory_seq_pos_min(llama_get_memory(ctx_tgt), id_slot), window_, common,
               common == query.tokens.size());
    const auto serves = [&](const Found& found) {
        const std::size_t count = found.parts.tokens.size();
        const std::size_t gained = found.usable > has ? found.usable - has : 0;
        return has_room(found.parts) && is_worth(found.common, gained, count);
    };
    std::optional<Found> found = best(query);
    // One that is too long for so little of it may hide a shorter one, which is whole.
    if (found && !serves(*found)) found = find(query, first(query.ids, query.ids.size()), 0);
    if (!found || !serves(*found)) return std::nullopt;
    return found;
}

bool PromptCache::has_room(const Parts& parts) const {
    // What is before a window may be of a server with larger batches.
    return parts.tokens.size() <= context_tokens_ &&
           (window_ == 0 ||
            parts.tokens.pos_next() - parts.pos_min <= window_ + before_window_);
}

bool PromptCache::is_better(const server_prompt& prompt, const server_tokens& tokens_new,
                            llama_context* ctx_tgt, std::int32_t id_slot) {
    if (is_broken_) return false;
    try {
        return best_for(prompt, query_of(tokens_new, prompt.space), ctx_tgt, id_slot).has_value();
    } catch (const std::exception& error) {
        failed("a lookup", error);
        return false;
    }
}

bool PromptCache::loses_much(const server_prompt& prompt, std::size_t kept_count) {
    const std::size_t count = prompt.tokens.size();
    return kept_count < count && (count - kept_count) * 8 >= count;
}

bool PromptCache::load(server_prompt& prompt, const server_tokens& tokens_new,
                       llama_context* ctx_tgt, llama_context* ctx_dft, std::int32_t id_slot) {
    update();
    if (is_broken_) return true;
    try {
        const Query query = query_of(tokens_new, prompt.space);
        std::optional<Found> found = best_for(prompt, query, ctx_tgt, id_slot);
        if (!found) return true;
        const std::int64_t start = ggml_time_us();
        if (!restore(*found, prompt, ctx_tgt, ctx_dft, id_slot)) return false;
        SRV_INF("restored %zu of %zu tokens, of a prompt of %zu, %.1f MiB, %s, in %.2f ms\n",
                found->usable, tokens_new.size(), prompt.tokens.size(),
                mib(found->parts.state_bytes()), found->is_copy ? "fetched" : "from memory",
                milliseconds_since(start));
        return true;
    } catch (const std::exception& error) {
        failed("a load", error);  // before anything was put into the slot
        return true;
    }
}

bool PromptCache::restore(const Found& found, server_prompt& prompt, llama_context* ctx_tgt,
                          llama_context* ctx_dft, std::int32_t id_slot) const {
    const Parts& parts = found.parts;
    // Before anything changes.
    std::list<common_prompt_checkpoint> checkpoints = parts.copy_checkpoints();
    server_tokens tokens = parts.tokens.clone();
    const std::pair<llama_context*, rkv_snapshot_part> halves[] = {{ctx_tgt, parts.state},
                                                                   {ctx_dft, parts.draft}};
    for (const auto& [context, part] : halves) {
        if (context == nullptr) continue;
        const std::size_t read = llama_state_seq_set_data_ext(
            context, static_cast<const std::uint8_t*>(part.data), part.size_bytes, id_slot,
            LLAMA_STATE_SEQ_FLAGS_NONE);
        if (read == part.size_bytes) continue;
        SRV_WRN("a state of %.1f MiB doesn't fit the context, or is none of it\n",
                mib(part.size_bytes));
        return false;
    }
    if (has_late_draft_) {
        // The draft model has the last position outside its memory, which is no part of a state:
        // what goes on begins one before.
        llama_memory_t memory = llama_get_memory(ctx_tgt);
        const llama_pos last = llama_memory_seq_pos_max(memory, id_slot);
        if (last > 0 &&
            llama_memory_seq_pos_max(llama_get_memory(ctx_dft), id_slot) + 1 == last) {
            // A recurrent state can't go back, though its memory may say so: what it would go
            // back to is not restored. It serves by its checkpoints, which have what the draft
            // model lacks.
            const llama_model* model = llama_get_model(ctx_tgt);
            const bool is_cut = !llama_model_is_recurrent(model) && !llama_model_is_hybrid(model);
            if (is_cut && !llama_memory_seq_rm(memory, id_slot, last, -1)) return false;
            tokens.keep_first(tokens.size() - 1);
        }
    }
    prompt.tokens = std::move(tokens);
    prompt.checkpoints = std::move(checkpoints);
    prompt.n_exact = SIZE_MAX;
    return true;
}

bool PromptCache::has(const server_prompt& prompt, const Query& query) {
    const std::size_t count = prompt.tokens.size();
    for (const std::uint32_t flags : {trimmable, 0U}) {
        auto result = rkv::sized<rkv_snapshot_cache_match_result>();
        rkv::check(rkv_snapshot_cache_match(cache_.get(), query.space.get(),
                                            first(query.ids, count).get(), flags, &result));
        const rkv::SnapshotPin pin = cache_.adopt_pin(result);
        // A much longer one isn't read for so few of its tokens. How long one below memory is
        // nobody says.
        if (flags != 0 && (result.common_token_count != count ||
                           !is_worth(count, count, static_cast<std::size_t>(result.token_count))))
            continue;
        const bool ends_here = flags == 0 || is_cuttable_;
        const bool is_here = pin && result.common_token_count == count;
        if (ends_here && (is_here ? window_ == 0 : result.fetchable_token_count == count))
            return true;
        if (!is_here) continue;
        const Parts parts = Parts::read(parts_of(pin), has_media_);
        const std::size_t most =
            usable(parts.tokens, parts.checkpoints, parts.pos_min, window_, count, false);
        if (has_room(parts) && (ends_here || most == count)) return true;
    }
    return false;
}

bool PromptCache::keeps(const server_prompt& prompt) {
    if (is_broken_ || prompt.n_exact < prompt.tokens.size()) return false;
    try {
        return has(prompt, query_of(prompt.tokens, prompt.space));
    } catch (const std::exception& error) {
        failed("a lookup", error);
        return false;
    }
}

llama_pos PromptCache::begin_of(const server_prompt& prompt) const {
    // What is still further back is not saved, also where the memory has it.
    return window_ == 0 ? pos_min
                        : std::max(pos_min, prompt.tokens.pos_next() - window_ - before_window_);
}

server_prompt_cache_state* PromptCache::alloc(const server_prompt& prompt,
                                              std::size_t state_size_main,
                                              std::size_t state_size_drft) {
    update();
    // After a context shift the state is not that of its tokens, so it answers nobody else. What is
    // only embedded nobody asks for again.
    if (is_broken_ || prompt.is_embedded || prompt.n_exact < prompt.tokens.size()) return nullptr;
    // A batch that was given up halfway leaves tokens that never came into the memory.
    if (pos_max + 1 < prompt.tokens.pos_next()) return nullptr;
    try {
        if (has(prompt, query_of(prompt.tokens, prompt.space))) return nullptr;
        const std::uint64_t size = Entry::bytes_of(prompt, state_size_main + state_size_drft);
        if (size > byte_limit_) {
            SRV_WRN("a prompt of %.1f MiB exceeds --cache-ram, not kept\n", mib(size));
            return nullptr;
        }
        pending_ =
            std::make_unique<Entry>(prompt, begin_of(prompt), state_size_main, state_size_drft);
        return &pending_->state();
    } catch (const std::exception& error) {
        failed("room for a state", error);
        return nullptr;
    }
}

void PromptCache::drop() {
    SRV_WRN("%s", "a state could not be read from the context, not kept\n");
    pending_.reset();
}

void PromptCache::update() {
    if (!pending_) return;
    try {
        insert(std::move(pending_));
    } catch (const std::exception& error) {
        failed("an insert", error);
    }
}

std::vector<std::size_t> PromptCache::beginnings_of(const Entry& entry, const Query& query) {
    const server_prompt& prompt = entry.prompt();
    std::vector<std::size_t> counts;
    std::size_t below = query.ids.size();
    // Shorter ones stay: who needs but a little would have to read all of this one.
    while (below * 2 > query.ids.size()) {
        auto result = rkv::sized<rkv_snapshot_cache_match_result>();
        rkv::check(rkv_snapshot_cache_match(cache_.get(), query.space.get(),
                                            first(query.ids, below - 1).get(), 0, &result));
        const rkv::SnapshotPin pin = cache_.adopt_pin(result);
        below = std::max(result.token_count, result.fetchable_token_count);
        if (below * 2 <= query.ids.size()) break;
        if (usable(prompt.tokens, prompt.checkpoints, entry.pos_min(), window_, below, false) ==
            below)
            counts.push_back(below);
    }
    return counts;
}

void PromptCache::remove(const std::vector<std::size_t>& counts,
                         const std::vector<std::uint32_t>& ids, const rkv::Namespace& space) {
    for (const std::size_t count : counts) cache_.remove(first(ids, count), space);
}

void PromptCache::insert(std::unique_ptr<Entry> entry) {
    try_remove_replaced();
    Query query = query_of(entry->prompt().tokens, entry->prompt().space);
    // In a remote store nothing can be cut: there a beginning serves others who have no more in
    // common with this one, and removing it here would remove it there too.
    std::vector<std::size_t> beginnings;
    if (!has_below_ || !remote_) beginnings = beginnings_of(*entry, query);
    if (!is_cuttable_) note_cuts(entry->prompt(), entry->pos_min(), query);
    // On disk what is old goes when what is new is there; memory alone needs the room.
    if (!has_below_) remove(beginnings, query.ids, query.space);
    const std::uint64_t unwritten = has_below_ ? unwritten_count() : 0;
    const std::vector<rkv_snapshot_part> parts = entry->parts();
    const rkv::TokenView tokens = first(query.ids, query.ids.size());
    auto args = rkv::sized<rkv_snapshot_cache_insert_args>();
    args.flags = RKV_SNAPSHOT_INSERT_STORABLE | RKV_SNAPSHOT_INSERT_TRIMMABLE;
    args.space = query.space.get();
    args.tokens = tokens.get();
    args.data = entry.get();
    for (const rkv_snapshot_part& part : parts) args.size_bytes += part.size_bytes;
    args.destructor = [](void* data, std::uint64_t, void*) { delete static_cast<Entry*>(data); };
    args.parts = parts.data();
    args.part_count = parts.size();
    args.part_size = sizeof(rkv_snapshot_part);
    const bool is_kept = cache_.insert(args).stored != 0;
    (void)entry.release();  // the cache's since the call succeeded
    if (!is_kept) {
        SRV_WRN("a prompt of %.1f MiB finds no room, not kept\n", mib(args.size_bytes));
        return;
    }
    SRV_INF("kept a prompt of %zu tokens, %.1f MiB\n", query.ids.size(), mib(args.size_bytes));
    if (has_below_ && !beginnings.empty())
        longer_.push_back({std::move(query.ids), std::move(query.space), std::move(beginnings),
                           unwritten, gone_count()});
}

std::size_t PromptCache::size() const {
    try {
        return cache_.stats().entry_bytes;
    } catch (const std::exception&) {
        return 0;
    }
}

std::string PromptCache::space(const task_params& params) const {
    const std::lock_guard<std::mutex> guard(adapters_lock_);
    Adapters adapters = adapters_;
    if (!params.lora.empty())
        for (auto& [number, scale] : adapters) {
            const auto given = params.lora.find(number);
            scale = given != params.lora.end() ? given->second : 0.0F;
        }
    return space_of(params.cache_salt, adapters);
}

void PromptCache::set_adapters(const std::vector<common_adapter_lora_info>& adapters) {
    const std::lock_guard<std::mutex> guard(adapters_lock_);
    adapters_.clear();
    for (const common_adapter_lora_info& adapter : adapters)
        adapters_.emplace_back(static_cast<int>(adapters_.size()), adapter.scale);
}

}  // namespace radixkv_server
