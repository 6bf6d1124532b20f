/**
 * @file cache.hpp
 * @brief The cache: match, insert, lock, evict, and what can be seen of it.
 */

#ifndef RADIXKV_CACHE_HPP
#define RADIXKV_CACHE_HPP

#include "groups.hpp"
#include "journal.hpp"
#include "namespace.hpp"
#include "page_table.hpp"
#include "sequence.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rkv {

/// Owns one lock on a node: rkv_cache_unlock() at the end. Made by Cache::lock() and match().
class Lock {
public:
    /// Owns nothing.
    Lock() noexcept = default;

    [[nodiscard]] rkv_lock_id id() const noexcept { return owned_.id(); }
    [[nodiscard]] explicit operator bool() const noexcept { return id() != 0; }
    /// Gives the lock up, without rkv_cache_unlock().
    [[nodiscard]] rkv_lock_id release() noexcept { return owned_.release(); }
    /// rkv_cache_unlock() now. An empty lock does nothing; one that cannot be unlocked is kept.
    void reset() { owned_.reset(); }

private:
    friend class Cache;
    Lock(std::shared_ptr<detail::CacheHandle> handle, rkv_lock_id lock) noexcept
        : owned_(std::move(handle), lock) {}

    detail::Owned<rkv_lock_id, rkv_cache_unlock> owned_;
};

/// Where Cache::insert_moving() goes on: a node, and how many tokens and pages lead to its end.
struct InsertPlace {
    rkv_node_id node = 0;
    std::uint64_t token_count = 0;
    std::uint64_t page_count = 0;
};

/// What Cache::match() found.
struct Match {
    rkv_cache_match_result found = sized<rkv_cache_match_result>();
    /// The whole pages, in order.
    std::vector<std::uint32_t> pages;
    /// With RKV_MATCH_LOCK: what keeps the pages.
    Lock lock;
};

/// What Cache::probe() found.
struct Probe {
    std::size_t token_count = 0;
    std::size_t position_count = 0;
};

/// What Cache::begin_many() began: for each item its sequence, empty where the status is not
/// RKV_STATUS_OK.
struct BegunMany {
    std::vector<Sequence> sequences;
    std::vector<rkv_sequence_info> infos;
    std::vector<rkv_status> statuses;
};

/// What Cache::publish_many() did for each item.
struct PublishedMany {
    std::vector<rkv_sequence_publish_result> results;
    std::vector<rkv_status> statuses;
};

/// What Cache::match_many() found for each item. The locks are plain ids: Cache::adopt_lock().
struct MatchMany {
    std::vector<rkv_cache_match_result> found;
    std::vector<rkv_status> statuses;
};

/// What Cache::probe_many() found for each item.
struct ProbeMany {
    std::vector<rkv_cache_probe_result> found;
    std::vector<rkv_status> statuses;
};

/// Owns an rkv_cache, together with the Sequences and Locks that were taken from it.
class Cache {
public:
    /// rkv_cache_config_init().
    [[nodiscard]] static rkv_cache_config config() {
        rkv_cache_config config{};
        check(rkv_cache_config_init(&config, sizeof config));
        return config;
    }

    /// rkv_cache_create() with the defaults.
    explicit Cache(PageTable& table) : Cache(table, nullptr) {}
    /// rkv_cache_create().
    Cache(PageTable& table, const rkv_cache_config& config) : Cache(table, &config) {}
    /// Takes over a handle that C code created on a page table with pages of page_size positions.
    Cache(rkv_cache* owned, std::uint32_t page_size)
        : handle_(std::make_shared<detail::CacheHandle>()) {
        handle_->cache = owned;
        handle_->page_size = page_size;
    }

    Cache(Cache&&) noexcept = default;
    Cache& operator=(Cache&&) noexcept = default;

    [[nodiscard]] rkv_cache* get() const noexcept { return handle_ ? handle_->cache : nullptr; }
    /// Gives the handle up, without rkv_cache_destroy(). The sequences and locks that are left go
    /// with it: their objects end nothing any more, C code does.
    [[nodiscard]] rkv_cache* release() noexcept {
        rkv_cache* cache = handle_ ? std::exchange(handle_->cache, nullptr) : nullptr;
        handle_.reset();
        return cache;
    }
    /// rkv_cache_destroy(), once the last Sequence and Lock of it are gone: now if there is none.
    void reset() noexcept { handle_.reset(); }
    /// Positions per page.
    [[nodiscard]] std::uint32_t page_size() const noexcept {
        return handle_ ? handle_->page_size : 0;
    }

    /// rkv_cache_match(); flags 0 or RKV_MATCH_LOCK.
    [[nodiscard]] Match match(TokenView tokens, const Namespace& ns = Namespace(),
                              std::uint32_t flags = 0) {
        Match out;
        if (page_size() != 0) out.pages.resize(tokens.position_count() / page_size());
        match_raw(tokens, out.pages, ns, flags, out.found);
        out.lock = Lock(handle_, out.found.lock);
        out.pages.resize(static_cast<std::size_t>(out.found.page_count));
        return out;
    }
    /// rkv_cache_match() into a buffer; positions / page_size() is always room enough. An empty
    /// buffer means that the pages are not wanted.
    rkv_cache_match_result match(TokenView tokens, span<std::uint32_t> pages,
                    const Namespace& ns = Namespace()) {
        auto found = sized<rkv_cache_match_result>();
        match_raw(tokens, pages, ns, 0, found);
        return found;
    }
    /// The same with RKV_MATCH_LOCK; `lock` lets go of what it held before.
    rkv_cache_match_result match(TokenView tokens, span<std::uint32_t> pages, Lock& lock,
                    const Namespace& ns = Namespace()) {
        auto found = sized<rkv_cache_match_result>();
        match_raw(tokens, pages, ns, RKV_MATCH_LOCK, found);
        lock = Lock(handle_, found.lock);
        return found;
    }
    /// rkv_cache_probe().
    [[nodiscard]] Probe probe(TokenView tokens, const Namespace& ns = Namespace()) const {
        Probe out;
        check(rkv_cache_probe(get(), ns.get(), tokens.get(), &out.token_count,
                              &out.position_count));
        return out;
    }
    /// rkv_cache_insert() from the root. `published`, if not empty, receives an entry per page. It
    /// must not be empty with an external pool.
    rkv_cache_insert_result insert(TokenView tokens, span<const std::uint32_t> pages,
                             span<std::uint32_t> published = {},
                             const Namespace& ns = Namespace()) {
        auto args = sized<rkv_cache_insert_args>();
        args.space = ns.get();
        return insert_raw(args, tokens, pages, published);
    }
    /// The same with RKV_INSERT_LOCK; `lock` lets go of what it held before.
    rkv_cache_insert_result insert(TokenView tokens, span<const std::uint32_t> pages, Lock& lock,
                             span<std::uint32_t> published = {},
                             const Namespace& ns = Namespace()) {
        auto args = sized<rkv_cache_insert_args>();
        args.flags = RKV_INSERT_LOCK;
        args.space = ns.get();
        const rkv_cache_insert_result done = insert_raw(args, tokens, pages, published);
        lock = Lock(handle_, done.lock);
        return done;
    }
    /// rkv_cache_insert() that goes on from an earlier match, which is best still locked. It must
    /// have a node: what begins at the root is inserted with a namespace.
    rkv_cache_insert_result insert_after(const rkv_cache_match_result& found, TokenView tokens,
                                   span<const std::uint32_t> pages,
                                   span<std::uint32_t> published = {}) {
        // The library would begin in the default namespace, whichever one was looked in.
        if (found.node == 0)
            throw Error(RKV_STATUS_INVALID_ARGUMENT, "found has no node, and ns is missing");
        return insert_after(found, tokens, pages, published, Namespace());
    }
    /// The same of any match: one without a node begins at the root of `ns`.
    rkv_cache_insert_result insert_after(const rkv_cache_match_result& found, TokenView tokens,
                                   span<const std::uint32_t> pages,
                                   span<std::uint32_t> published, const Namespace& ns) {
        auto args = sized<rkv_cache_insert_args>();
        args.space = ns.get();
        args.from_node = found.node;
        if (found.node != 0) {
            args.from_token_index = found.token_count;
            args.from_page_index = found.page_count;
        }
        return insert_raw(args, tokens, pages, published);
    }
    /// rkv_cache_insert() behind the node that a lock is on; the lock moves to the new end. It must
    /// not be empty: what begins at the root is inserted with a namespace.
    rkv_cache_insert_result insert_moving(Lock& lock, const InsertPlace& from, TokenView tokens,
                                          span<const std::uint32_t> pages,
                                          span<const GroupRow> groups = {},
                                          span<std::uint32_t> published = {}) {
        // The library would take a new one, of which this object knew nothing.
        if (!lock) throw Error(RKV_STATUS_INVALID_ARGUMENT, "lock is empty");
        auto args = sized<rkv_cache_insert_args>();
        args.flags = RKV_INSERT_LOCK;
        args.from_node = from.node;
        args.from_token_index = from.token_count;
        args.from_page_index = from.page_count;
        args.lock = lock.id();
        return insert_groups_raw(args, tokens, pages, groups, published);
    }
    /// rkv_cache_insert() from the root, of the pages of several groups.
    rkv_cache_insert_result insert_groups(TokenView tokens, span<const std::uint32_t> pages,
                                          span<const GroupRow> groups,
                                          span<std::uint32_t> published = {},
                                          const Namespace& ns = Namespace()) {
        auto args = sized<rkv_cache_insert_args>();
        args.space = ns.get();
        return insert_groups_raw(args, tokens, pages, groups, published);
    }
    /// The same with RKV_INSERT_LOCK; `lock` lets go of what it held before.
    rkv_cache_insert_result insert_groups(TokenView tokens, span<const std::uint32_t> pages,
                                          span<const GroupRow> groups, Lock& lock,
                                          span<std::uint32_t> published = {},
                                          const Namespace& ns = Namespace()) {
        auto args = sized<rkv_cache_insert_args>();
        args.flags = RKV_INSERT_LOCK;
        args.space = ns.get();
        const rkv_cache_insert_result done =
            insert_groups_raw(args, tokens, pages, groups, published);
        lock = Lock(handle_, done.lock);
        return done;
    }
    /// rkv_cache_probe_groups().
    [[nodiscard]] GroupProbe probe_groups(TokenView tokens,
                                          const Namespace& ns = Namespace()) const {
        GroupProbe out;
        out.costs.resize(RKV_GROUP_LIMIT);
        std::size_t count = 0;
        check(rkv_cache_probe_groups(get(), ns.get(), tokens.get(), out.costs.data(),
                                     sizeof(rkv_group_cost), out.costs.size(), &count,
                                     &out.depths));
        out.costs.resize(count);
        return out;
    }
    /// rkv_cache_read_locked_pages().
    [[nodiscard]] std::vector<rkv_locked_page> locked_pages(const Lock& lock,
                                                            std::uint32_t group) const {
        return detail::read<rkv_locked_page>(
            [&](rkv_locked_page* pages, std::size_t capacity, std::size_t* count) {
                return rkv_cache_read_locked_pages(get(), lock.id(), group, pages,
                                                   sizeof(rkv_locked_page), capacity, count);
            });
    }
    /// rkv_cache_evict_pool() without a report; returns how many pages the pool got. Refused with
    /// an external pool: evict_pool_reported().
    std::size_t evict_pool(std::uint32_t pool, std::size_t page_count) {
        std::size_t freed = 0;
        check(rkv_cache_evict_pool(get(), pool, page_count, nullptr, 0, 0, nullptr, &freed));
        return freed;
    }
    /// rkv_cache_evict_pool() that returns the pages; it takes no more than surely fit in `most`,
    /// which is at least the number of groups.
    EvictedPages evict_pool_reported(std::uint32_t pool, std::size_t page_count,
                                     std::size_t most = 1024) {
        EvictedPages out;
        out.pages.resize(most);
        std::size_t count = 0;
        rkv_evicted_page unused{};
        check(rkv_cache_evict_pool(get(), pool, page_count,
                                   detail::present(span<rkv_evicted_page>(out.pages), unused),
                                   sizeof(rkv_evicted_page), out.pages.size(), &count,
                                   &out.freed_page_count));
        out.pages.resize(count);
        return out;
    }
    /// rkv_cache_lock().
    [[nodiscard]] Lock lock(rkv_node_id node) {
        rkv_lock_id lock = 0;
        check(rkv_cache_lock(get(), node, &lock));
        return Lock(handle_, lock);
    }
    /// rkv_cache_slide_lock().
    void slide(const Lock& lock, std::uint64_t position) {
        check(rkv_cache_slide_lock(get(), lock.id(), position));
    }
    /// Owns from now on a lock that C code took.
    [[nodiscard]] Lock adopt_lock(rkv_lock_id lock) { return Lock(present_handle(), lock); }

    /// rkv_cache_evict() without a report; returns how many pages were evicted. Refused with an
    /// external pool: evict_reported().
    std::size_t evict(std::size_t page_count) {
        std::size_t count = 0;
        check(rkv_cache_evict(get(), page_count, nullptr, 0, &count));
        return count;
    }
    /// rkv_cache_evict() that reports the pages in a buffer, and evicts no more than fit.
    std::size_t evict(std::size_t page_count, span<std::uint32_t> pages) {
        std::size_t count = 0;
        std::uint32_t unused = 0;
        check(rkv_cache_evict(get(), page_count, detail::present(pages, unused), pages.size(),
                              &count));
        return count;
    }
    /// rkv_cache_evict() that returns the pages.
    [[nodiscard]] std::vector<std::uint32_t> evict_reported(std::size_t page_count) {
        // Other groups may have pages of the pool, too, and those that the last page takes along
        // have room.
        std::uint64_t most = 0;
        for (const rkv_group_stats& group : group_stats()) most += group.cached_page_count;
        std::vector<std::uint32_t> pages(
            static_cast<std::size_t>(std::min<std::uint64_t>(page_count, most)) +
            RKV_GROUP_LIMIT - 1);
        pages.resize(evict(page_count, pages));
        return pages;
    }
    /// rkv_tier_config_init().
    [[nodiscard]] static rkv_tier_config tier_config() {
        rkv_tier_config config{};
        check(rkv_tier_config_init(&config, sizeof config));
        return config;
    }
    /// rkv_cache_attach_tiers().
    void attach_tiers(const rkv_tier_config& config) {
        check(rkv_cache_attach_tiers(get(), &config));
    }
    /// The same with several pools; the config says nothing of any.
    void attach_tiers(rkv_tier_config config, span<const rkv_tier_pool_config> pools) {
        config.pools = pools.data();
        config.pool_count = pools.size();
        config.pool_size = sizeof(rkv_tier_pool_config);
        attach_tiers(config);
    }
    /// rkv_cache_detach_tiers(); false when the time was over before everything was written.
    bool detach_tiers(std::uint64_t timeout_ms) {
        const rkv_status status = rkv_cache_detach_tiers(get(), timeout_ms);
        if (status != RKV_STATUS_PENDING) check(status);
        return status == RKV_STATUS_OK;
    }
    /// rkv_cache_flush_tiers(); false when something is not written yet.
    [[nodiscard]] bool flush_tiers(std::uint64_t timeout_ms) {
        const rkv_status status = rkv_cache_flush_tiers(get(), timeout_ms);
        if (status != RKV_STATUS_PENDING) check(status);
        return status == RKV_STATUS_OK;
    }
    /// rkv_cache_shrink_tiers(); UINT64_MAX leaves either as it is.
    void shrink_tiers(std::uint64_t host_bytes, std::uint64_t disk_bytes = UINT64_MAX) {
        check(rkv_cache_shrink_tiers(get(), host_bytes, disk_bytes));
    }
    /// rkv_cache_poll(): fills the front of both buffers, which may be empty, and says how many.
    rkv_cache_poll_result poll(span<rkv_copy_job> jobs, span<rkv_fetch_end> ends) {
        auto result = sized<rkv_cache_poll_result>();
        check(rkv_cache_poll(get(), jobs.data(), sizeof(rkv_copy_job), jobs.size(), ends.data(),
                             sizeof(rkv_fetch_end), ends.size(), &result));
        return result;
    }
    /// rkv_cache_complete().
    void complete(span<const std::uint64_t> jobs, bool is_good = true) {
        check(rkv_cache_complete(get(), jobs.data(), jobs.size(), is_good));
    }
    /// rkv_cache_prefetch(); UINT64_MAX is no deadline, flags 0 or RKV_FETCH_LOOK_ONLY.
    rkv_cache_prefetch_result prefetch(TokenView tokens, const Namespace& ns = Namespace(),
                                       std::uint64_t deadline_ms = UINT64_MAX,
                                       std::uint32_t flags = 0) {
        auto begun = sized<rkv_cache_prefetch_result>();
        check(rkv_cache_prefetch(get(), ns.get(), tokens.get(), deadline_ms, flags, &begun));
        return begun;
    }
    /// rkv_cache_cancel_prefetch().
    void cancel_prefetch(rkv_prefetch_id prefetch) {
        check(rkv_cache_cancel_prefetch(get(), prefetch));
    }
    /// rkv_cache_read_tier_stats().
    [[nodiscard]] rkv_tier_stats tier_stats() const {
        auto stats = sized<rkv_tier_stats>();
        check(rkv_cache_read_tier_stats(get(), &stats));
        return stats;
    }

    /// rkv_cache_clear(): namespaces that have the same as `space` in the fields that RKV_CLEAR_
    /// flags choose.
    rkv_cache_clear_result clear(const Namespace& space,
                                 std::uint32_t flags = RKV_CLEAR_NAMESPACE) {
        return clear_raw(space.get(), flags);
    }
    /// rkv_cache_clear() of all namespaces.
    rkv_cache_clear_result clear_everything() { return clear_raw(nullptr, RKV_CLEAR_EVERYTHING); }
    /// rkv_cache_contains_page().
    [[nodiscard]] bool contains_page(std::uint32_t page) const {
        bool contains = false;
        check(rkv_cache_contains_page(get(), page, &contains));
        return contains;
    }
    /// rkv_node_read_info().
    [[nodiscard]] rkv_node_info node_info(rkv_node_id node) const {
        auto info = sized<rkv_node_info>();
        check(rkv_node_read_info(get(), node, &info));
        return info;
    }
    /// rkv_node_read_pages().
    [[nodiscard]] std::vector<std::uint32_t> node_pages(rkv_node_id node) const {
        return detail::read<std::uint32_t>(
            [&](std::uint32_t* pages, std::size_t capacity, std::size_t* count) {
                return rkv_node_read_pages(get(), node, pages, capacity, count);
            });
    }
    /// rkv_node_read_pages() into a buffer; returns the number of pages.
    std::size_t node_pages(rkv_node_id node, span<std::uint32_t> pages) const {
        std::size_t count = 0;
        std::uint32_t unused = 0;
        check(rkv_node_read_pages(get(), node, detail::present(pages, unused), pages.size(),
                                   &count));
        return count;
    }
    /// rkv_node_read_children().
    [[nodiscard]] std::vector<rkv_node_id> node_children(rkv_node_id node) const {
        return detail::read<rkv_node_id>(
            [&](rkv_node_id* children, std::size_t capacity, std::size_t* count) {
                return rkv_node_read_children(get(), node, children, capacity, count);
            });
    }
    /// rkv_node_read_children() into a buffer; returns the number of children.
    std::size_t node_children(rkv_node_id node, span<rkv_node_id> children) const {
        std::size_t count = 0;
        rkv_node_id unused = 0;
        check(rkv_node_read_children(get(), node, detail::present(children, unused),
                                      children.size(), &count));
        return count;
    }
    /// rkv_cache_read_journal(), into buffers that grow when one record doesn't fit.
    rkv_cache_read_journal_result read_journal(std::uint64_t after_number,
                                               JournalBuffers& into) const {
        return into.read<rkv_cache_read_journal_result>([&](const auto& room, auto& out) {
            return rkv_cache_read_journal(get(), after_number, &room, &out);
        });
    }
    /// rkv_cache_read_contents(), likewise. Call it until next_page is 0.
    rkv_cache_read_contents_result read_contents(std::uint32_t first_page,
                                                 JournalBuffers& into) const {
        return into.read<rkv_cache_read_contents_result>([&](const auto& room, auto& out) {
            return rkv_cache_read_contents(get(), first_page, &room, &out);
        });
    }
    /// rkv_cache_read_stats().
    [[nodiscard]] rkv_cache_stats stats() const {
        auto stats = sized<rkv_cache_stats>();
        check(rkv_cache_read_stats(get(), &stats));
        return stats;
    }
    /// rkv_cache_check(): throws RKV_STATUS_CORRUPT.
    void check_invariants() const { check(rkv_cache_check(get())); }
    /// rkv_cache_read_group_stats(): each group in numbers.
    [[nodiscard]] std::vector<rkv_group_stats> group_stats() const {
        return detail::read<rkv_group_stats>(
            [&](rkv_group_stats* groups, std::size_t capacity, std::size_t* count) {
                return rkv_cache_read_group_stats(get(), groups, sizeof(rkv_group_stats), capacity,
                                                  count);
            });
    }
    /// rkv_cache_dump(); RKV_DUMP_JSON or RKV_DUMP_DOT.
    [[nodiscard]] std::string dump(std::uint32_t format = RKV_DUMP_JSON) const {
        const std::vector<char> text =
            detail::read<char>([&](char* buffer, std::size_t capacity, std::size_t* bytes) {
                return rkv_cache_dump(get(), format, buffer, capacity, bytes);
            });
        return std::string(text.data());
    }

    /// rkv_sequence_begin(). `out_state`, if not NULL, receives the state that it reported.
    [[nodiscard]] Sequence begin(TokenView tokens, const Namespace& ns = Namespace(),
                                 std::uint64_t reserve_position_count = 0,
                                 rkv_sequence_info* out_state = nullptr,
                                 std::uint64_t allocate_position_count = 0) {
        auto args = sized<rkv_sequence_begin_args>();
        args.space = ns.get();
        args.tokens = tokens.get();
        args.reserve_position_count = reserve_position_count;
        args.allocate_position_count = allocate_position_count;
        auto state = sized<rkv_sequence_info>();
        check(rkv_sequence_begin(get(), &args, &state));
        if (out_state != nullptr) *out_state = state;
        return Sequence(handle_, state.sequence);
    }
    /// rkv_sequence_continue() of a retained parent, or with RKV_CONTINUE_RUNNING of a live one.
    [[nodiscard]] Sequence continue_from(rkv_sequence_id parent, TokenView tokens,
                                         const Namespace& ns = Namespace(),
                                         std::uint32_t flags = 0,
                                         std::uint64_t reserve_position_count = 0,
                                         rkv_sequence_info* out_state = nullptr,
                                         std::uint64_t allocate_position_count = 0) {
        return continue_raw(parent, tokens, nullptr, ns, flags, reserve_position_count, out_state,
                            allocate_position_count);
    }
    /// The same; a child without parent begins with all of its tokens by a lookup.
    [[nodiscard]] Sequence continue_or_begin(rkv_sequence_id parent, TokenView tokens,
                                             TokenView all_tokens,
                                             const Namespace& ns = Namespace(),
                                             std::uint32_t flags = 0,
                                             std::uint64_t reserve_position_count = 0,
                                             rkv_sequence_info* out_state = nullptr,
                                             std::uint64_t allocate_position_count = 0) {
        return continue_raw(parent, tokens, all_tokens.get(), ns, flags, reserve_position_count,
                            out_state, allocate_position_count);
    }
    /// rkv_sequence_fork() of a retained parent; Sequence::fork() is that of a live one.
    [[nodiscard]] std::vector<Sequence>
    fork_retained(rkv_sequence_id parent, std::size_t child_count,
                  std::uint64_t reserve_position_count = 0) {
        return Sequence::fork_of(handle_, parent, child_count, reserve_position_count);
    }
    /// rkv_sequence_begin_many(). An item that fails throws nothing: it has a status.
    [[nodiscard]] BegunMany begin_many(span<const rkv_sequence_begin_args> items) {
        BegunMany out;
        out.sequences.reserve(items.size());
        out.infos.resize(items.size());
        out.statuses.resize(items.size());
        check(rkv_sequence_begin_many(get(), items.data(), items.size(), sizeof items[0],
                                      out.infos.data(), sizeof(rkv_sequence_info),
                                      out.statuses.data()));
        for (const rkv_sequence_info& info : out.infos)
            out.sequences.push_back(Sequence(handle_, info.sequence));
        return out;
    }
    /// rkv_sequence_append_many() into a buffer of statuses, as many as there are items: for the
    /// step of decoding. An item that fails throws nothing.
    void append_many(span<const rkv_sequence_append_item> items, span<rkv_status> statuses) {
        if (statuses.size() != items.size())
            throw Error(RKV_STATUS_INVALID_ARGUMENT, "statuses: not as many as items");
        check(rkv_sequence_append_many(get(), items.data(), items.size(), sizeof items[0],
                                       statuses.data()));
    }
    /// The same that returns the statuses.
    [[nodiscard]] std::vector<rkv_status>
    append_many(span<const rkv_sequence_append_item> items) {
        std::vector<rkv_status> statuses(items.size());
        append_many(items, statuses);
        return statuses;
    }
    /// rkv_sequence_publish_many(). An item that fails throws nothing.
    PublishedMany publish_many(span<const rkv_sequence_publish_item> items) {
        PublishedMany out;
        out.results.resize(items.size());
        out.statuses.resize(items.size());
        check(rkv_sequence_publish_many(get(), items.data(), items.size(), sizeof items[0],
                                        out.results.data(), sizeof(rkv_sequence_publish_result),
                                        out.statuses.data()));
        return out;
    }
    /// rkv_sequence_release_many(). Those that were ended are empty afterwards; one that fails, as
    /// an empty one does, throws nothing.
    std::vector<rkv_status> release_many(span<Sequence> sequences) {
        std::vector<rkv_sequence_id> ids;
        ids.reserve(sequences.size());
        for (const Sequence& sequence : sequences) ids.push_back(sequence.get());
        std::vector<rkv_status> statuses(ids.size());
        check(rkv_sequence_release_many(get(), ids.data(), ids.size(), statuses.data()));
        for (std::size_t i = 0; i < statuses.size(); ++i)
            if (statuses[i] == RKV_STATUS_OK) (void)sequences[i].release();
        return statuses;
    }
    /// rkv_cache_match_many(). An item that fails throws nothing.
    [[nodiscard]] MatchMany match_many(span<const rkv_cache_match_item> items) {
        MatchMany out;
        out.found.resize(items.size());
        out.statuses.resize(items.size());
        check(rkv_cache_match_many(get(), items.data(), items.size(), sizeof items[0],
                                   out.found.data(), sizeof(rkv_cache_match_result),
                                   out.statuses.data()));
        return out;
    }
    /// rkv_cache_probe_many(). An item that fails throws nothing.
    [[nodiscard]] ProbeMany probe_many(span<const rkv_cache_probe_item> items) const {
        ProbeMany out;
        out.found.resize(items.size());
        out.statuses.resize(items.size());
        check(rkv_cache_probe_many(get(), items.data(), items.size(), sizeof items[0],
                                   out.found.data(), sizeof(rkv_cache_probe_result),
                                   out.statuses.data()));
        return out;
    }
    /// rkv_cache_read_namespaces().
    [[nodiscard]] std::vector<rkv_namespace> namespaces() const {
        return detail::read<rkv_namespace>(
            [&](rkv_namespace* spaces, std::size_t capacity, std::size_t* count) {
                return rkv_cache_read_namespaces(get(), spaces, sizeof(rkv_namespace), nullptr,
                                                 capacity, count);
            });
    }
    /// rkv_sequence_drop().
    void drop(rkv_sequence_id retained) { check(rkv_sequence_drop(get(), retained)); }
    /// rkv_cache_drop_retained(); returns how many more pages can be had.
    std::size_t drop_retained(std::size_t page_count) {
        std::size_t count = 0;
        check(rkv_cache_drop_retained(get(), page_count, &count));
        return count;
    }
    /// rkv_cache_drop_retained_pool(); returns how many more pages of the pool can be had.
    std::size_t drop_retained_pool(std::uint32_t pool, std::size_t page_count) {
        std::size_t count = 0;
        check(rkv_cache_drop_retained_pool(get(), pool, page_count, &count));
        return count;
    }
    /// rkv_cache_read_retained().
    [[nodiscard]] std::vector<rkv_sequence_id> retained() const {
        return detail::read<rkv_sequence_id>(
            [&](rkv_sequence_id* sequences, std::size_t capacity, std::size_t* count) {
                return rkv_cache_read_retained(get(), sequences, capacity, count);
            });
    }
    /// rkv_cache_read_retained() into a buffer; returns the number of retained sequences.
    std::size_t retained(span<rkv_sequence_id> sequences) const {
        std::size_t count = 0;
        rkv_sequence_id unused = 0;
        check(rkv_cache_read_retained(get(), detail::present(sequences, unused), sequences.size(),
                                 &count));
        return count;
    }
    /// Owns from now on a sequence that C code began.
    [[nodiscard]] Sequence adopt_sequence(rkv_sequence_id sequence) {
        return Sequence(present_handle(), sequence);
    }

private:
    Cache(PageTable& table, const rkv_cache_config* config)
        : handle_(std::make_shared<detail::CacheHandle>()) {
        handle_->page_size = table.stats().page_size;
        check(rkv_cache_create(table.get(), config, &handle_->cache));
    }
    // For what has no C call that would refuse: an owner of an id in no cache would end nothing.
    [[nodiscard]] const std::shared_ptr<detail::CacheHandle>& present_handle() const {
        if (get() == nullptr) throw Error(RKV_STATUS_INVALID_ARGUMENT, "cache is empty");
        return handle_;
    }
    Sequence continue_raw(rkv_sequence_id parent, TokenView tokens, const rkv_tokens* all_tokens,
                          const Namespace& ns, std::uint32_t flags,
                          std::uint64_t reserve_position_count, rkv_sequence_info* out_state,
                          std::uint64_t allocate_position_count) {
        auto args = sized<rkv_sequence_continue_args>();
        args.flags = flags;
        args.parent = parent;
        args.space = ns.get();
        args.tokens = tokens.get();
        args.all_tokens = all_tokens;
        args.reserve_position_count = reserve_position_count;
        args.allocate_position_count = allocate_position_count;
        auto state = sized<rkv_sequence_info>();
        check(rkv_sequence_continue(get(), &args, &state));
        if (out_state != nullptr) *out_state = state;
        return Sequence(handle_, state.sequence);
    }
    void match_raw(TokenView tokens, span<std::uint32_t> pages, const Namespace& ns,
                   std::uint32_t flags, rkv_cache_match_result& found) {
        check(rkv_cache_match(get(), ns.get(), tokens.get(), flags, pages.data(), pages.size(),
                              &found));
    }
    rkv_cache_clear_result clear_raw(const rkv_namespace* space, std::uint32_t flags) {
        auto args = sized<rkv_cache_clear_args>();
        args.flags = flags;
        args.space = space;
        auto result = sized<rkv_cache_clear_result>();
        check(rkv_cache_clear(get(), &args, &result));
        return result;
    }
    rkv_cache_insert_result insert_raw(rkv_cache_insert_args args, TokenView tokens,
                                 span<const std::uint32_t> pages,
                                 span<std::uint32_t> published) {
        if (published.size() != 0 && published.size() < pages.size())
            throw Error(RKV_STATUS_BUFFER_TOO_SMALL, "published is shorter than pages");
        args.tokens = tokens.get();
        args.pages = pages.data();
        args.page_count = pages.size();
        auto result = sized<rkv_cache_insert_result>();
        check(rkv_cache_insert(get(), &args, published.size() != 0 ? published.data() : nullptr,
                               &result));
        return result;
    }

    rkv_cache_insert_result insert_groups_raw(rkv_cache_insert_args args, TokenView tokens,
                                              span<const std::uint32_t> pages,
                                              span<const GroupRow> groups,
                                              span<std::uint32_t> published) {
        std::vector<rkv_group_row> rows;
        for (const GroupRow& row : groups) {
            if (row.published.size() != 0 && row.published.size() < row.pages.size())
                throw Error(RKV_STATUS_BUFFER_TOO_SMALL, "a row's published is shorter than pages");
            rows.push_back({row.group, 0, row.pages.data(), row.pages.size(),
                            row.published.size() != 0 ? row.published.data() : nullptr});
        }
        args.groups = rows.data();
        args.group_count = rows.size();
        args.group_size = sizeof(rkv_group_row);
        return insert_raw(args, tokens, pages, published);
    }

    std::shared_ptr<detail::CacheHandle> handle_;
};

#if defined(RKV_FAULT_INJECTION)
/// rkv_fault_panic().
inline void fault_panic(Cache& cache) { check(rkv_fault_panic(cache.get())); }
#endif

}  // namespace rkv

#endif  // RADIXKV_CACHE_HPP
