#include "page/cache_events.hpp"

#include <utility>
#include <vector>

namespace engine {

namespace {

using Json = nlohmann::json;

std::string event(const char* name, const Json& data) {
    return std::string("event: ") + name + "\ndata: " + data.dump() + "\n\n";
}

/// Bytes as characters of that number: a token may be a part of a character, so who shows them has
/// to put them together first.
std::string as_characters(std::string_view bytes) {
    std::string text;
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80) {
            text += c;
        } else {
            text += static_cast<char>(0xC0 | byte >> 6);
            text += static_cast<char>(0x80 | (byte & 0x3F));
        }
    }
    return text;
}

/// Empty for the default namespace. The engine sets salts and epochs, no more.
std::string name_of_space(const rkv_journal_record& record) {
    static const char* digits = "0123456789abcdef";
    std::string name;
    for (const std::uint8_t byte : record.salt) {
        name += digits[byte >> 4];
        name += digits[byte & 15];
    }
    if (name.find_first_not_of('0') == std::string::npos) name.clear();
    if (record.epoch > 0) name += "." + std::to_string(record.epoch);
    return name;
}

const char* name_of_reason(std::uint32_t reason) {
    switch (reason) {
        case RKV_REASON_CAPACITY: return "capacity";
        case RKV_REASON_CALLER: return "caller";
        case RKV_REASON_INVALIDATED: return "invalidated";
        case RKV_REASON_DESTROYED: return "destroyed";
        case RKV_REASON_LIMIT: return "limit";
        default: return "unknown";
    }
}

Json list_of(rkv::span<const std::uint32_t> numbers) {
    return std::vector<std::uint32_t>(numbers.begin(), numbers.end());
}

/// What each group of layers keeps.
Json kinds_of(const LayerGroups& layers) {
    Json kinds = Json::array();
    for (const rkv_group_config& group : layers.table_groups()) switch (group.kind) {
            case RKV_GROUP_WINDOW:
                kinds.push_back({{"kind", "window"}, {"window", group.window}});
                break;
            case RKV_GROUP_STATE: kinds.push_back({{"kind", "state"}}); break;
            default: kinds.push_back({{"kind", "full"}}); break;
        }
    if (kinds.empty()) kinds.push_back({{"kind", "full"}});
    return kinds;
}

}  // namespace

std::string CacheEvents::next() {
    std::string text = tells_contents_ ? contents() : changes();
    if (exact_) text += nodes();
    return text + stats();
}

std::string CacheEvents::contents() {
    const bool begins = next_page_ == 0;
    const rkv_cache_read_contents_result told =
        core_.kv().cache().read_contents(next_page_, buffers_);
    if (begins) number_ = told.number;
    next_page_ = told.next_page;
    if (next_page_ == 0) {
        tells_contents_ = false;
        exact_number_ = told.newest_number;
    }
    if (!begins) return records();
    return event("snapshot", {{"page_size", core_.kv().cache().page_size()},
                              {"groups", kinds_of(core_.kv().groups())}}) +
           records();
}

std::string CacheEvents::changes() {
    const rkv_cache_read_journal_result read =
        core_.kv().cache().read_journal(number_, buffers_);
    if (read.lost_count > 0) {
        ++lost_count_;
        tells_contents_ = true;
        exact_ = false;
        words_.clear();
        nodes_ = NodeStates();
        nodes_read_at_.clear();
        stats_told_.clear();
        return contents();
    }
    number_ = read.last_number;
    std::string text = records();
    if (!exact_ && number_ >= exact_number_) {
        exact_ = true;
        text += event("exact", {{"number", number_}});
    }
    return text;
}

std::string CacheEvents::records() {
    if (buffers_.size() == 0) return {};
    Json list = Json::array();
    Json data = {{"words", Json::object()}, {"special", Json::object()}};
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        const rkv::JournalRecord record = buffers_[i];
        const std::uint32_t group = record.raw->group;
        switch (record.raw->kind) {
            case RKV_JOURNAL_STORED:
                if (group > 0) { // its tokens were told with those that it hangs on
                    list.push_back({{"group", group},
                                    {"stored", list_of(record.pages)},
                                    {"under", list_of(record.group_0_pages)}});
                    break;
                }
                add_words(record.tokens, data);
                list.push_back({{"group", group},
                                {"stored", list_of(record.pages)},
                                {"parent", record.raw->parent_page},
                                {"position", record.raw->first_position},
                                {"tokens", list_of(record.tokens)},
                                {"space", name_of_space(*record.raw)}});
                break;
            case RKV_JOURNAL_REMOVED:
                list.push_back({{"group", group},
                                {"removed", list_of(record.pages)},
                                {"reason", name_of_reason(record.raw->reason)}});
                break;
            case RKV_JOURNAL_CLEARED:
                list.push_back({{"cleared", name_of_space(*record.raw)}});
                break;
            default: break;
        }
    }
    data["records"] = std::move(list);
    return event("records", data);
}

void CacheEvents::add_words(rkv::span<const std::uint32_t> tokens, Json& to) {
    const Tokenizer& tokenizer = core_.tokenizer();
    for (const std::uint32_t id : tokens) {
        if (!words_.insert(id).second) continue;
        const std::string_view bytes = tokenizer.decode(id);
        if (bytes.empty())
            to["special"][std::to_string(id)] = tokenizer.special(id);
        else
            to["words"][std::to_string(id)] = as_characters(bytes);
    }
}

/// Nodes are read when something happened to them, and at most a twentieth of the time.
std::string CacheEvents::nodes() {
    const Clock::time_point start = Clock::now();
    if (start < nodes_due_) return {};
    const rkv_cache_stats now = core_.kv().cache().stats();
    const std::string state =
        Json({now.lookup_count, now.inserted_page_count, now.evicted_page_count,
              now.reclaimable_page_count, now.sequence_count, now.inherit_count,
              now.node_count, now.retained_sequence_count})
            .dump();
    if (state == nodes_read_at_) return {};
    nodes_read_at_ = state;
    const Json changes = nodes_.changes(core_.kv().cache());
    const Clock::time_point end = Clock::now();
    nodes_due_ = end + 20 * (end - start);
    return changes.is_null() ? std::string() : event("nodes", changes);
}

std::string CacheEvents::stats() {
    const std::size_t group_count = core_.kv().groups().list().size();
    Json pools = Json::array(); // each group has one of its own
    for (std::uint32_t group = 0; group < group_count; ++group) {
        const rkv_pool_stats pages = core_.kv().table().pool_stats(group);
        pools.push_back({{"total", pages.total_page_count},
                         {"free", pages.free_page_count},
                         {"private", pages.private_page_count},
                         {"cached", pages.cached_page_count},
                         {"reclaimable", pages.reclaimable_page_count}});
    }
    const rkv_cache_stats cache = core_.kv().cache().stats();
    const Metrics& metrics = core_.metrics();
    const Json data = {
        {"pages", pools},
        {"evicted_pages", cache.evicted_page_count},
        {"prompt_tokens", metrics.answered_tokens.load()},
        {"cached_tokens", metrics.found_tokens.load()},
        {"first_tokens", metrics.time_to_first_token.count()},
        {"first_token_seconds", metrics.time_to_first_token.sum()},
        {"running", metrics.running.load()},
        {"waiting", metrics.waiting.load()}};
    std::string text = event("stats", data);
    if (text == stats_told_) return {};
    stats_told_ = text;
    return text;
}

}  // namespace engine
