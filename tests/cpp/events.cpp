// E01, E03, E04: the encoder of events in C++.
#include "check.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace {

using test::ids;

rkv::Cache cache_with_journal(rkv::PageTable& table) {
    rkv_cache_config config = rkv::Cache::config();
    config.journal_bytes = 1 << 16;
    return rkv::Cache(table, config);
}

void serve(rkv::Cache& cache, rkv::TokenView tokens, const rkv::Namespace& ns = {}) {
    rkv_sequence_info state{};
    rkv::Sequence sequence = cache.begin(tokens, ns, 0, &state);
    if (state.copy_count > 0) sequence.confirm_copies();
    (void)sequence.publish(state.position_count);
}

bool says(const rkv::EventBatch& batch, const std::string& text) {
    const std::string payload(batch.payload.begin(), batch.payload.end());
    return payload.find(text) != std::string::npos;
}

void batches_come_until_nothing_is_new() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache = cache_with_journal(table);
    const auto prompt = ids(1, 12);
    serve(cache, prompt);
    rkv::EventEncoder encoder(cache);
    // Grows by itself, an event at a time.
    rkv::EventBatch batch = encoder.encode(1.0, 1);
    CHECK(says(batch, "AllBlocksCleared") && !says(batch, "BlockStored") && batch.has_more());
    batch = encoder.encode(1.0, 1);
    CHECK(says(batch, "BlockStored"));
    CHECK(batch.info.stored_block_count == 3);
    while (batch.has_more()) batch = encoder.encode(1.0);
    CHECK(encoder.encode(1.0).payload.size() == 0);
    encoder.repeat();
    CHECK(encoder.encode(1.0).info.stored_block_count == 3);

    rkv::EventEncoder moved = std::move(encoder);
    CHECK(moved && !encoder);
    rkv::EventEncoder again(moved.release());
    CHECK(again && !moved);
    again.reset();
    CHECK(!again);
}

void namespaces_have_names() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache = cache_with_journal(table);
    auto config = rkv::sized<rkv_event_encoder_config>();
    config.flags = RKV_EVENTS_WIDE_HASHES;
    config.medium = "CPU";
    rkv::EventEncoder encoder(cache, config);
    const rkv::Namespace sql = rkv::Namespace().lora(7);
    encoder.name_namespace(sql, "sql", nullptr);
    serve(cache, ids(1, 4), sql);
    const rkv::EventBatch batch = encoder.encode(1.0);
    CHECK(says(batch, "sql") && says(batch, "CPU"));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, encoder.name_namespace({}, "sql", nullptr));
}


// E01: no room at all is an event at a time, and not the question how much it needs.
void a_limit_of_zero_is_an_event_at_a_time() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache = cache_with_journal(table);
    serve(cache, ids(1, 12));
    rkv::EventEncoder encoder(cache);
    rkv::EventBatch batch = encoder.encode(1.0, 0);
    CHECK(batch.payload.data() != nullptr);
    CHECK(batch.info.event_count == 1);
    CHECK(says(batch, "AllBlocksCleared") && batch.has_more());
    batch = encoder.encode(1.0, 0);
    CHECK(says(batch, "BlockStored"));
}

}  // namespace

int main() {
    batches_come_until_nothing_is_new();
    namespaces_have_names();
    a_limit_of_zero_is_an_event_at_a_time();
}
