/**
 * @file journal.hpp
 * @brief Records of the journal: room for them, and one after the other as a consumer reads them.
 */

#ifndef RADIXKV_JOURNAL_HPP
#define RADIXKV_JOURNAL_HPP

#include "namespace.hpp"
#include "span.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace rkv {

/// A record, and what belongs to it. Good until its JournalBuffers are read into again.
struct JournalRecord {
    const rkv_journal_record* raw = nullptr;
    span<const std::uint32_t> pages;
    /// Of stored pages, those of group 0 with the same positions.
    span<const std::uint32_t> group_0_pages;
    /// RKV_TEXT_ID_LIMIT where an item says what is there.
    span<const std::uint32_t> tokens;
    span<const rkv_journal_item> items;

    /// The namespace of stored pages, and the one that was cleared.
    [[nodiscard]] Namespace ns() const noexcept {
        auto made = sized<rkv_namespace>();
        made.flags = raw->namespace_flags;
        made.lora_id = raw->lora_id;
        made.epoch = raw->epoch;
        std::copy(std::begin(raw->image_digest), std::end(raw->image_digest), made.image_digest);
        std::copy(std::begin(raw->salt), std::end(raw->salt), made.salt);
        return Namespace(made);
    }
};

/// Room for records. Kept from call to call it stops allocating; it grows when not even one record
/// fits.
class JournalBuffers {
public:
    /// Room for as many as a call is to read.
    explicit JournalBuffers(std::size_t records = 256, std::size_t pages = 1024,
                            std::size_t tokens = 16384, std::size_t items = 256)
        : records_(records), pages_(pages), tokens_(tokens), items_(items) {}

    /// Records that were read last.
    [[nodiscard]] std::size_t size() const noexcept {
        return records_.empty() ? 0 : count_;  // empty after a move
    }
    /// One of them.
    [[nodiscard]] JournalRecord operator[](std::size_t i) const noexcept {
        const rkv_journal_record& raw = records_[i];
        return JournalRecord{&raw, part(pages_, raw.page_index, raw.page_count),
                             part(pages_, raw.group_0_page_index, raw.page_count),
                             part(tokens_, raw.token_index, raw.token_count),
                             part(items_, raw.item_index, raw.item_count)};
    }

private:
    friend class Cache;
    friend class PageTable;

    template <class T>
    static span<const T> part(const std::vector<T>& all, std::uint64_t at,
                              std::uint64_t count) noexcept {
        return {all.data() + at, static_cast<std::size_t>(count)};
    }

    /// Makes a call that reads into these buffers; again, with more room, when one record doesn't
    /// fit.
    template <class Result, class Call> Result read(Call call) {
        auto result = sized<Result>();
        count_ = 0;
        // Without any room, as after a move, data() may be NULL, which asks.
        grow(records_, 1);
        for (;;) {
            auto room = sized<rkv_journal_buffers>();
            room.records = records_.data();
            room.record_size = sizeof(rkv_journal_record);
            room.record_capacity = records_.size();
            room.pages = pages_.data();
            room.page_capacity = pages_.size();
            room.tokens = tokens_.data();
            room.token_capacity = tokens_.size();
            room.items = items_.data();
            room.item_size = sizeof(rkv_journal_item);
            room.item_capacity = items_.size();
            const rkv_status status = call(room, result);
            if (status != RKV_STATUS_BUFFER_TOO_SMALL) {
                check(status);
                count_ = static_cast<std::size_t>(result.record_count);
                return result;
            }
            grow(records_, result.record_count);
            grow(pages_, result.page_count);
            grow(tokens_, result.token_count);
            grow(items_, result.item_count);
        }
    }

    template <class T> static void grow(std::vector<T>& buffer, std::uint64_t needed) {
        if (buffer.size() < needed) buffer.resize(static_cast<std::size_t>(needed));
    }

    std::vector<rkv_journal_record> records_;
    std::vector<std::uint32_t> pages_;
    std::vector<std::uint32_t> tokens_;
    std::vector<rkv_journal_item> items_;
    std::size_t count_ = 0;
};

}  // namespace rkv

#endif  // RADIXKV_JOURNAL_HPP
