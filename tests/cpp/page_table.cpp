// rkv::PageTable: pages, slots, rows, batches, and its handle.
#include "check.hpp"

#include <array>
#include <type_traits>

static_assert(!std::is_copy_constructible_v<rkv::PageTable>);
static_assert(std::is_nothrow_move_constructible_v<rkv::PageTable>);
static_assert(std::is_nothrow_move_assignable_v<rkv::PageTable>);

namespace {

// B10
void refuses_configurations() {
    rkv_page_table_config config = rkv::PageTable::config();
    CHECK_EQ(config.page_size, 16u);
    CHECK_EQ(config.slot_count, 256u);
    std::string message =
        CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::PageTable(config));
    CHECK(message.find("page_count") != std::string::npos);
    config.page_count = 8;
    config.page_size = RKV_PAGE_SIZE_MAX + 1;
    message = CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::PageTable(config));
    CHECK(message.find("page_size") != std::string::npos);
}

// K12
void allocates_and_maps() {
    rkv::PageTable table = test::table(9, 4, 2);
    CHECK_EQ(table.stats().total_page_count, 8u);
    const std::uint32_t slot = table.allocate_slot();
    const std::vector<std::uint32_t> pages = table.allocate_pages(3);
    for (std::uint32_t page : pages) CHECK(page != 0);
    table.map(slot, 0, pages);
    CHECK(table.row(slot) == pages);
    CHECK_EQ(table.capacity(slot), 12u);

    std::array<std::uint32_t, 2> part{};
    CHECK_EQ(table.row(slot, 1, part), 2u);
    CHECK_EQ(part[0], pages[1]);
    CHECK_EQ(part[1], pages[2]);
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL, table.row(slot, 0, part)); /* J06 */
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL, table.row(slot, 0, rkv::span<std::uint32_t>()));
    CHECK_EQ(part[0], pages[1]);
    CHECK(table.row(slot, 3).empty());

    // Strictly in order: the next index is 3.
    std::array<std::uint32_t, 1> one{};
    table.allocate_pages(one);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, table.map(slot, 2, one));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, table.map(slot, 4, one));
    table.free_pages(one);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, table.free_pages(one));
    table.check_invariants();

    table.reserve(slot, 20);
    CHECK_EQ(table.capacity(slot), 20u);
    table.reserve(slot, 3);
    CHECK_EQ(table.capacity(slot), 20u);
    CHECK(table.can_reserve(slot, 32));
    CHECK(!table.can_reserve(slot, 33));
    CHECK(table.can_reserve_new(12));
    CHECK(!table.can_reserve_new(13));

    table.free_slot(slot);
    CHECK_EQ(table.stats().free_page_count, 8u);
    CHECK_EQ(table.stats().free_slot_count, 2u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, table.free_slot(slot));
    table.check_invariants();
}

// K12: where positions lie, for any of them in any order.
void maps_positions() {
    rkv::PageTable table = test::table(9, 4);
    const std::uint32_t slot = table.allocate_slot();
    table.reserve(slot, 12);
    const std::vector<std::uint32_t> row = table.row(slot);
    const std::vector<std::uint64_t> positions{11, 0, 5};
    const std::vector<std::int64_t> mapping = table.slot_mapping(slot, positions);
    for (std::size_t i = 0; i < positions.size(); ++i)
        CHECK_EQ(mapping[i], static_cast<std::int64_t>(row[positions[i] / 4] * 4 +
                                                       positions[i] % 4));
    std::array<std::int64_t, 2> buffer{-1, -1};
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL, table.slot_mapping(slot, positions, buffer));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, table.slot_mapping(slot, {12, 0}, buffer));
    CHECK_EQ(buffer[0], -1);
    CHECK_EQ(buffer[1], -1);
    table.slot_mapping(slot, {0, 11}, buffer);
    CHECK_EQ(buffer[1], mapping[0]);
}

void batches() {
    rkv::PageTable table = test::table(9, 4);
    const std::uint32_t a = table.allocate_slot();
    const std::uint32_t b = table.allocate_slot();
    table.reserve(a, 12);
    table.reserve(b, 8);
    const std::vector<std::uint32_t> row_a = table.row(a);
    const std::vector<std::uint32_t> row_b = table.row(b);

    const std::vector<rkv_page_table_batch_row> rows{{b, 8}, {a, 9}, {a, 0}};
    rkv::Batch batch = table.batch(rows);
    CHECK(batch.indptr == (std::vector<std::int32_t>{0, 2, 5, 5}));
    CHECK(batch.last_page_len == (std::vector<std::int32_t>{4, 1, 0}));
    CHECK_EQ(batch.indices.size(), 5u);
    CHECK_EQ(batch.indices[0], static_cast<std::int32_t>(row_b[0]));
    CHECK_EQ(batch.indices[4], static_cast<std::int32_t>(row_a[2]));

    // Reused: what fitted once is not allocated again.
    const std::int32_t* before = batch.indices.data();
    table.batch({{a, 5}}, batch);
    CHECK(batch.indices.data() == before);
    CHECK(batch.indptr == (std::vector<std::int32_t>{0, 2}));
    CHECK_EQ(batch.indices.size(), 2u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, table.batch({{a, 13}}, batch));

    // Into memory of the caller's own.
    std::array<std::int32_t, 2> indptr{};
    std::array<std::int32_t, 3> indices{};
    std::array<std::int32_t, 1> last{};
    auto arrays = rkv::sized<rkv_page_table_batch_arrays>();
    arrays.indptr = indptr.data();
    arrays.indices = indices.data();
    arrays.indices_capacity = indices.size();
    arrays.last_page_len = last.data();
    CHECK_EQ(table.batch({{a, 12}}, arrays), 3u);
    CHECK_EQ(indptr[1], 3);
    CHECK_EQ(last[0], 4);
    arrays.indices_capacity = 2;
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL, table.batch({{a, 12}}, arrays));

    batch = table.batch({});
    CHECK(batch.indptr == (std::vector<std::int32_t>{0}));
    CHECK(batch.indices.empty());
}

// M01, M03: a moved-from object refuses, a C handle passes in and out.
void moves() {
    rkv::PageTable first = test::table(9, 4);
    rkv_page_table* raw = first.get();
    rkv::PageTable second = std::move(first);
    CHECK(second.get() == raw);
    CHECK(first.get() == nullptr);  // NOLINT: what a moved-from one does is what is tested
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)first.stats());
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)first.allocate_slot());
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)first.row(0));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)first.batch({}));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::Cache(first));

    first = std::move(second);
    CHECK_EQ(first.stats().free_page_count, 8u);
    rkv_page_table* released = first.release();
    CHECK(released == raw);
    rkv::PageTable adopted(released);
    CHECK_EQ(adopted.stats().free_page_count, 8u);
    adopted.reset();
    CHECK(adopted.get() == nullptr);
    adopted.reset();
}

}  // namespace

int main() {
    refuses_configurations();
    allocates_and_maps();
    maps_positions();
    batches();
    moves();
}
