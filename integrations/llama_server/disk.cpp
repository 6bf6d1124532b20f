// What of the prompt cache has to do with what lies below memory: the disk, and a remote store.
#include "options.hpp"
#include "prompt_cache.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

namespace radixkv_server {

namespace {

/// Milliseconds that the end of the server waits for the disk.
constexpr std::uint64_t close_ms = 10000;
/// How often a request that waits for the disk looks.
constexpr std::chrono::microseconds look_interval(500);
/// Prompts on their way to the disk whose beginnings are remembered.
constexpr std::size_t longer_most = 64;

/// The name of a model's folder: for whoever looks into the directory.
std::string folder_of(const common_params& params, const Fingerprint& fingerprint) {
    static const char* digits = "0123456789abcdef";
    std::string name = std::filesystem::path(params.model.path).stem().string();
    for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
    name.resize(std::min<std::size_t>(name.size(), 80));
    name += '-';
    for (std::size_t at = 0; at < 6; ++at) {
        name += digits[fingerprint[at] >> 4];
        name += digits[fingerprint[at] & 15];
    }
    return name;
}

}  // namespace

void PromptCache::attach(const Setup& setup) {
    rkv_snapshot_tier_config config{};
    rkv::check(rkv_snapshot_tier_config_init(&config, sizeof config));
    std::string directory;
    if (!options().disk.empty()) {
        const std::filesystem::path parent = options().disk;
        directory = (parent / folder_of(*setup.params, *fingerprint_)).string();
        std::filesystem::create_directories(parent);
        config.directory = directory.c_str();
        config.byte_limit = bytes_of(options().disk_mib);
    }
    if (!options().remote.empty()) {
        remote_.emplace("--cache-remote", options().remote, "");
        config.remote = &remote_->functions();
    }
    // What was let go before it was written comes on top of --cache-ram: so much, or one prompt
    // alone that is longer.
    config.waiting_byte_limit = std::min(config.waiting_byte_limit, byte_limit_ / 4 + 1);
    std::copy(fingerprint_->begin(), fingerprint_->end(), config.fingerprint);
    rkv::check(rkv_snapshot_cache_attach(cache_.get(), &config));
    has_below_ = true;
    // Not where: a URL may have a password.
    if (remote_) SRV_INF("%s", "prompts are kept in the store of --cache-remote\n");
    if (directory.empty()) return;
    auto stats = rkv::sized<rkv_snapshot_tier_stats>();
    rkv::check(rkv_snapshot_cache_read_tier_stats(cache_.get(), &stats));
    SRV_INF("prompts are kept in %s: %zu from before, %.1f MiB\n", directory.c_str(),
            static_cast<std::size_t>(stats.entry_count), mib(stats.used_bytes));
}

void PromptCache::tick() {
    auto stats = rkv::sized<rkv_snapshot_tier_stats>();
    // Any call takes in what the disk has done, and this one changes nothing.
    if (!has_below_) return;
    [[maybe_unused]] const rkv_status status =
        rkv_snapshot_cache_read_tier_stats(cache_.get(), &stats);
    try_remove_replaced();
}

std::uint64_t PromptCache::unwritten_count() {
    const rkv_snapshot_tier_stats stats = cache_.tier_stats();
    return stats.failed_write_count + stats.unfit_count;
}

std::uint64_t PromptCache::gone_count() {
    // What waits for room is in neither number, and then in both.
    const rkv_snapshot_tier_stats stats = cache_.tier_stats();
    return stats.write_count - stats.entry_count;
}

bool PromptCache::remove_replaced(std::uint64_t wait_ms) {
    if (longer_.empty()) return true;
    const std::uint64_t unwritten = unwritten_count();
    // One that may never be on disk takes nothing away: what it begins with goes when it is not
    // used, or with the next one.
    const auto is_lost = [unwritten](const Longer& one) {
        return one.unwritten_count != unwritten;
    };
    longer_.erase(std::remove_if(longer_.begin(), longer_.end(), is_lost), longer_.end());
    if (longer_.empty()) return true;
    if (!cache_.flush(std::chrono::milliseconds(wait_ms))) {
        // A disk that is never done keeps no list of all there was.
        if (longer_.size() > longer_most) longer_.erase(longer_.begin());
        return false;
    }
    if (unwritten_count() != unwritten) {
        longer_.clear();
        return true;
    }
    const std::uint64_t gone = gone_count();
    // One by one: where a call throws, those behind it have their turn later.
    while (!longer_.empty()) {
        const Longer one = std::move(longer_.front());
        longer_.erase(longer_.begin());
        // What waited for room may have left memory before there was some.
        const rkv::SnapshotPin pin = cache_.match(first(one.ids, one.ids.size()), one.space);
        // Of what is in memory nobody says whether it is on disk too: it may be what went there.
        const bool is_here = pin.token_count() == one.ids.size() && one.gone_count == gone;
        if (is_here || pin.fetchable_token_count() == one.ids.size())
            remove(one.counts, one.ids, one.space);
    }
    return true;
}

void PromptCache::try_remove_replaced() {
    try {
        remove_replaced(0);
    } catch (const std::exception& error) {
        failed("a removal", error);
    }
}

void PromptCache::close() {
    if (!has_below_.exchange(false)) return;
    const std::int64_t start = ggml_time_us();
    const auto left = [start] {
        return close_ms - std::min(close_ms, static_cast<std::uint64_t>(milliseconds_since(start)));
    };
    std::uint64_t failure_count = 0;
    try {
        // A flush says once that a write failed since the one before, whichever that was.
        if (!remove_replaced(close_ms)) remove_replaced(left());
        // So the flushes of a server at work have told nobody.
        failure_count = cache_.tier_stats().failed_write_count;
    } catch (const std::exception& error) {
        SRV_WRN("what longer prompts take the place of is left on disk: %s\n", error.what());
    }
    longer_.clear();
    const rkv_status status = rkv_snapshot_cache_detach(cache_.get(), left());
    if (status != RKV_STATUS_OK)
        SRV_WRN("not all prompts were written, %.0f ms\n", milliseconds_since(start));
    if (failure_count > 0)
        SRV_WRN("%zu writes of prompts failed since the start: some may not be on disk\n",
                static_cast<std::size_t>(failure_count));
    remote_.reset();
}

rkv::SnapshotPin PromptCache::take(const Query& query, std::uint32_t flags,
                                   Clock::time_point deadline,
                                   const std::function<bool()>& should_stop, bool& has_asked) {
    const std::int64_t start = ggml_time_us();
    rkv::TokenView tokens = first(query.ids, query.ids.size());
    auto in_memory = rkv::sized<rkv_snapshot_cache_match_result>();
    rkv::check(rkv_snapshot_cache_match(cache_.get(), query.space.get(), tokens.get(), flags,
                                        &in_memory));
    const rkv::SnapshotPin shorter = cache_.adopt_pin(in_memory);
    // Of a remote store nobody knows what it has: it is asked for what memory and disk lack.
    const bool asks = !options().remote.empty() && !has_asked &&
                      in_memory.common_token_count < query.ids.size();
    if (in_memory.fetchable_token_count == 0 && !asks) return {};
    // Of what the disk has whole nobody asks for more.
    if (has_asked) tokens = first(query.ids, in_memory.fetchable_token_count);
    auto fetch = rkv::sized<rkv_snapshot_cache_fetch_result>();
    rkv::check(rkv_snapshot_cache_fetch(cache_.get(), query.space.get(), tokens.get(), flags,
                                        &fetch));
    if (fetch.ticket == 0) return {};
    const bool is_asked = fetch.token_count == 0;
    has_asked = has_asked || is_asked;
    bool wants = is_asked || (fetch.token_count <= context_tokens_ &&
                              is_worth(fetch.common_token_count,
                                       fetch.common_token_count - in_memory.common_token_count,
                                       fetch.token_count));
    // One that is too long for so little of it may hide a shorter one, which is whole.
    if (!wants && flags != 0) {
        rkv::check(rkv_snapshot_cache_cancel(cache_.get(), fetch.ticket));
        return take(query, 0, deadline, should_stop, has_asked);
    }
    auto taken = rkv::sized<rkv_snapshot_cache_match_result>();
    while (wants) {
        const rkv_status status = rkv_snapshot_cache_take(cache_.get(), fetch.ticket, &taken);
        if (status == RKV_STATUS_OK) break;
        wants = status == RKV_STATUS_PENDING && Clock::now() < deadline && !should_stop();
        if (wants) std::this_thread::sleep_for(look_interval);
    }
    const double waited = milliseconds_since(start);
    if (!wants) {
        [[maybe_unused]] const rkv_status status =
            rkv_snapshot_cache_cancel(cache_.get(), fetch.ticket);
        if (is_asked)
            SRV_INF("the remote store did not answer in %.0f ms\n", waited);
        else
            SRV_INF("a prompt of %zu tokens, %.1f MiB, is left on disk after %.0f ms\n",
                    static_cast<std::size_t>(fetch.token_count), mib(fetch.size_bytes), waited);
        return {};
    }
    if (is_asked) {
        SRV_INF("the remote store was asked for a prompt: %zu tokens came in %.1f ms\n",
                static_cast<std::size_t>(taken.common_token_count), waited);
        return cache_.adopt_pin(taken);
    }
    SRV_INF("a prompt of %zu tokens, %.1f MiB, %s from disk in %.1f ms\n",
            static_cast<std::size_t>(fetch.token_count), mib(fetch.size_bytes),
            taken.pin != 0 ? "read" : "could not be read", waited);
    return cache_.adopt_pin(taken);
}

PromptCache::Clock::time_point PromptCache::deadline() {
    return Clock::now() + std::chrono::milliseconds(options().disk_wait_ms);
}

std::shared_ptr<Fetched> PromptCache::fetch(const server_tokens& tokens, const task_params& params,
                                            Clock::time_point deadline,
                                            const std::function<bool()>& should_stop) {
    if (!has_below_ || is_broken_ || !params.cache_prompt || options().disk_wait_ms == 0)
        return nullptr;
    try {
        const Query query = query_of(tokens, space(params));
        auto fetched = std::make_shared<Fetched>();
        bool has_asked = false;
        // Where ends can't be cut off, what is a beginning as a whole may serve better. It comes
        // first: the store has nothing else, and is asked for what is longer than what was found.
        if (!is_cuttable_) fetched->add(take(query, 0, deadline, should_stop, has_asked));
        fetched->add(take(query, trimmable, deadline, should_stop, has_asked));
        // Many may wait for a slot: what does not fit is not kept for them.
        if (cache_.stats().entry_bytes > byte_limit_) fetched->release();
        return fetched;
    } catch (const std::exception& error) {
        failed("a look at the disk", error);
        return nullptr;
    }
}

}  // namespace radixkv_server
