#include "serve/tiers.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace engine {

namespace {

constexpr std::uint64_t shutdown_ms = 10000;
constexpr std::size_t sample_bytes = std::size_t{1} << 20;

/// The beginning and the end of a file, and its size: enough to tell one model from another.
std::string sample(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary | std::ios::ate);
    const auto size = static_cast<std::streamoff>(in.tellg());
    std::string text = std::to_string(size);
    if (size <= 0) return text;
    const auto part = std::min<std::streamoff>(size, sample_bytes);
    for (const std::streamoff from : {std::streamoff{0}, size - part}) {
        std::string bytes(static_cast<std::size_t>(part), '\0');
        in.seekg(from);
        in.read(bytes.data(), part);
        text += bytes;
    }
    return text;
}

/// KV of another model, in another format or in pages of another size means something else.
void write_fingerprint(const std::filesystem::path& model, std::uint32_t page_size,
                       std::uint8_t (&into)[32]) {
    const std::string what = sample(model / "config.json") + sample(model / "model.safetensors") +
                             "f32 NHD " + std::to_string(page_size);
    for (std::size_t half = 0; half < 2; ++half) {
        const std::string text = (half == 0 ? "0" : "1") + what;
        const rkv::Digest digest = rkv::image_digest(text.data(), text.size());
        std::copy(digest.begin(), digest.end(), into + half * digest.size());
    }
}

}  // namespace

Tiers::Tiers(rkv::Cache& cache, rkv::Runner& runner, const TierSettings& settings,
             const std::filesystem::path& model)
    : cache_(cache), runner_(runner), has_remote_(settings.remote != nullptr) {
    rkv_tier_config config = rkv::Cache::tier_config();
    const std::string directory = settings.directory.string();
    config.page_bytes = runner.stats().page_bytes;
    config.host_bytes = settings.host_bytes;
    if (!directory.empty()) {
        config.directory = directory.c_str();
        config.disk_bytes = settings.disk_bytes;
    }
    config.remote = settings.remote;
    write_fingerprint(model, cache.page_size(), config.fingerprint);
    cache.attach_tiers(config);
}

Tiers::~Tiers() {
    try {
        (void)cache_.detach_tiers(shutdown_ms);
    } catch (const rkv::Error&) {
        // The cache takes them along.
    }
}

bool Tiers::looks_good(rkv::Sequence& sequence) const {
    // What others have stored is known when it was asked for.
    return has_remote_ || sequence.fetch(UINT64_MAX, RKV_FETCH_LOOK_ONLY).position_count > 0;
}

bool Tiers::fetch(rkv::Sequence& sequence) { return sequence.fetch().is_open != 0; }

std::optional<rkv_prefetch_id> Tiers::prefetch(const std::vector<std::uint32_t>& prompt,
                                               const rkv::Namespace& name_space) {
    const auto now = std::chrono::steady_clock::now();
    if (now < no_room_until_) return std::nullopt;
    const rkv_cache_prefetch_result begun = cache_.prefetch(prompt, name_space);
    // There is something, and others have all the room for it. They end soon; asking costs the
    // prompt's digests, so it isn't done in each step.
    const bool is_refused =
        begun.prefetch == 0 && begun.position_count + begun.asked_position_count > 0;
    if (!is_refused) return begun.prefetch;
    no_room_until_ = now + std::chrono::milliseconds(20);
    return std::nullopt;
}

void Tiers::cancel_prefetch(rkv_prefetch_id prefetch) { cache_.cancel_prefetch(prefetch); }

bool Tiers::step() {
    ended_.clear();
    const rkv_cache_poll_result got = cache_.poll(jobs_, ends_);
    const auto job_count = static_cast<std::size_t>(got.job_count);
    const auto end_count = static_cast<std::size_t>(got.end_count);
    ended_.assign(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(end_count));
    if (job_count == 0) return end_count > 0;
    runner_.copy_tier_pages({jobs_.data(), job_count});
    done_.clear();
    for (std::size_t i = 0; i < job_count; ++i) done_.push_back(jobs_[i].job);
    cache_.complete(done_);
    return true;
}

}  // namespace engine
