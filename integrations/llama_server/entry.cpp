#include "entry.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace radixkv_server {

namespace {

constexpr std::uint32_t magic = 0x564b4c52;
constexpr std::size_t parts_before = 3, parts_of_checkpoint = 3;

struct Header {
    std::uint32_t magic, version;
    std::int32_t pos_min;
    std::uint32_t checkpoint_count;
    std::uint64_t token_bytes;
};

struct Place {
    std::int64_t n_tokens;
    std::int32_t pos_min, pos_max;
};

template <class T> void append(std::vector<std::uint8_t>& bytes, const T& value) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(&value);
    bytes.insert(bytes.end(), data, data + sizeof value);
}

/// Reads one after the other.
class Reader {
public:
    explicit Reader(const rkv_snapshot_part& part)
        : data_(static_cast<const std::uint8_t*>(part.data)), left_(part.size_bytes) {}

    const std::uint8_t* bytes(std::uint64_t count) {
        if (count > left_) throw std::runtime_error("an entry whose header is too short");
        left_ -= count;
        return std::exchange(data_, data_ + count);
    }
    template <class T> T value() {
        T value;
        std::memcpy(&value, bytes(sizeof value), sizeof value);
        return value;
    }

private:
    const std::uint8_t* data_;
    std::uint64_t left_;
};

rkv_snapshot_part part_of(const std::vector<std::uint8_t>& bytes) {
    return {bytes.data(), bytes.size()};
}

std::vector<std::uint8_t> copied(const rkv_snapshot_part& part) {
    const auto* data = static_cast<const std::uint8_t*>(part.data);
    return part.size_bytes == 0 ? std::vector<std::uint8_t>()
                                : std::vector<std::uint8_t>(data, data + part.size_bytes);
}

}  // namespace

std::uint32_t saved_before_window(const common_params& params, const llama_context* target,
                                  const llama_context* draft) {
    std::uint32_t count = (1U << 24) - 1;  // the most that LLAMA_STATE_SEQ_FLAGS_BEFORE_WINDOW has
    bool has_windows = false;
    for (const llama_context* context : {target, draft}) {
        if (context == nullptr || llama_model_n_swa(llama_get_model(context)) == 0) continue;
        has_windows = true;
        if (params.swa_full) continue;
        // As llama_kv_cache_iswa() makes its memory: longer than the windows by a batch, or more.
        const auto window = static_cast<std::uint32_t>(llama_model_n_swa(llama_get_model(context)));
        const std::uint32_t windows = window * (params.kv_unified ? llama_n_seq_max(context) : 1);
        count = std::min(count, GGML_PAD(windows + llama_n_ubatch(context), 256) - windows);
    }
    return has_windows ? count : 0;
}

Entry::Entry(const server_prompt& prompt, llama_pos pos_min, std::size_t state_bytes,
             std::size_t draft_bytes)
    : state_{prompt.clone(), {}}, pos_min_(pos_min) {
    state_.data.main.resize(state_bytes);
    state_.data.drft.resize(draft_bytes);
    const std::vector<char> tokens = prompt.tokens.serialize();
    append(header_, Header{magic, entry_version, pos_min,
                           static_cast<std::uint32_t>(prompt.checkpoints.size()), tokens.size()});
    for (const common_prompt_checkpoint& checkpoint : prompt.checkpoints)
        append(header_, Place{checkpoint.n_tokens, checkpoint.pos_min, checkpoint.pos_max});
    header_.insert(header_.end(), tokens.begin(), tokens.end());
}

std::uint64_t Entry::bytes_of(const server_prompt& prompt, std::uint64_t state_bytes) {
    std::uint64_t sum = state_bytes + sizeof(Header) + prompt.tokens.serialize().size();
    for (const common_prompt_checkpoint& checkpoint : prompt.checkpoints)
        sum += sizeof(Place) + checkpoint.size();
    return sum;
}

std::vector<rkv_snapshot_part> Entry::parts() const {
    std::vector<rkv_snapshot_part> parts{part_of(header_), part_of(state_.data.main),
                                         part_of(state_.data.drft)};
    for (const common_prompt_checkpoint& checkpoint : state_.prompt.checkpoints)
        for (const auto* bytes :
             {&checkpoint.data_tgt, &checkpoint.data_dft, &checkpoint.data_spec})
            parts.push_back(part_of(*bytes));
    return parts;
}

Parts Parts::read(const std::vector<rkv_snapshot_part>& parts, bool has_media) {
    if (parts.size() < parts_before) throw std::runtime_error("an entry with too few parts");
    Reader reader(parts[0]);
    const auto header = reader.value<Header>();
    const std::size_t count = header.checkpoint_count;
    if (header.magic != magic || header.version != entry_version ||
        parts.size() != parts_before + parts_of_checkpoint * count)
        throw std::runtime_error("an entry that isn't llama-server's");
    Parts made;
    made.pos_min = header.pos_min;
    made.state = parts[1];
    made.draft = parts[2];
    const rkv_snapshot_part* part = &parts[parts_before];
    for (std::size_t at = 0; at < count; ++at, part += parts_of_checkpoint) {
        const auto place = reader.value<Place>();
        made.checkpoints.push_back(
            {place.n_tokens, place.pos_min, place.pos_max, part[0], part[1], part[2]});
    }
    // First whether they are there: nobody knows who wrote it.
    const std::uint8_t* tokens = reader.bytes(header.token_bytes);
    llama_tokens packed(header.token_bytes / sizeof(llama_token));
    std::memcpy(packed.data(), tokens, packed.size() * sizeof(llama_token));
    made.tokens = server_tokens::deserialize(packed, has_media);
    return made;
}

std::uint64_t Parts::state_bytes() const noexcept {
    std::uint64_t sum = state.size_bytes + draft.size_bytes;
    for (const Checkpoint& checkpoint : checkpoints)
        sum += checkpoint.target.size_bytes + checkpoint.draft.size_bytes +
               checkpoint.spec.size_bytes;
    return sum;
}

std::list<common_prompt_checkpoint> Parts::copy_checkpoints() const {
    std::list<common_prompt_checkpoint> made;
    for (const Checkpoint& checkpoint : checkpoints) {
        common_prompt_checkpoint& copy = made.emplace_back();
        copy.update_pos(checkpoint.n_tokens, checkpoint.pos_min, checkpoint.pos_max);
        copy.data_tgt = copied(checkpoint.target);
        copy.data_dft = copied(checkpoint.draft);
        copy.data_spec = copied(checkpoint.spec);
    }
    return made;
}

}  // namespace radixkv_server
