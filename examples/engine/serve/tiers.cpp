#include "serve/tiers.hpp"

#include "model/safetensors.hpp"
#include "serve/without_memory.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace engine {

namespace {

constexpr std::uint64_t shutdown_ms = 10000;
constexpr std::streamoff end_bytes = std::streamoff{1} << 20;
constexpr std::streamoff stride = std::streamoff{1} << 20, piece_bytes = 4096;

/// Puts two digests of `text`, one after the other, into `into`.
void write_digests(const std::string& text, std::uint8_t (&into)[32]) {
    for (std::size_t half = 0; half < 2; ++half) {
        const std::string with_half = (half == 0 ? "0" : "1") + text;
        const rkv::Digest digest = rkv::image_digest(with_half.data(), with_half.size());
        std::copy(digest.begin(), digest.end(), into + half * digest.size());
    }
}

/// A digest of a file's name and size, of its beginning and its end, and of a piece of each MiB
/// between them: models that were trained on from one another differ in all of their layers.
std::string sample(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary | std::ios::ate);
    const auto size = static_cast<std::streamoff>(in.tellg());
    if (size < 0) throw std::runtime_error(file.string() + ": cannot be opened");
    std::string text = file.filename().string() + '\0' + std::to_string(size) + '\0';
    const auto add = [&](std::streamoff from, std::streamoff wanted) {
        const std::size_t before = text.size();
        text.resize(before + static_cast<std::size_t>(std::min(wanted, size - from)));
        in.seekg(from);
        in.read(&text[before], static_cast<std::streamsize>(text.size() - before));
        if (!in) throw std::runtime_error(file.string() + ": cannot be read");
    };
    add(0, end_bytes);
    for (std::streamoff from = end_bytes; from < size; from += stride) add(from, piece_bytes);
    add(std::max<std::streamoff>(size - end_bytes, 0), end_bytes);
    std::uint8_t digests[32];
    write_digests(text, digests);
    return {reinterpret_cast<const char*>(digests), sizeof digests};
}

/// KV of another model, in another format or in pages of another size means something else.
void write_fingerprint(const std::filesystem::path& model, const std::string& format,
                       std::uint32_t page_size, std::uint8_t (&into)[32]) {
    std::string what = sample(model / "config.json");
    for (const std::filesystem::path& file : weight_files(model)) what += sample(file);
    write_digests(what + format + " NHD " + std::to_string(page_size), into);
}

}  // namespace

Tiers::Tiers(rkv::Cache& cache, std::vector<TierPages> pages, const TierSettings& settings,
             const std::filesystem::path& model)
    : cache_(cache), pages_(std::move(pages)), has_remote_(settings.remote != nullptr) {
    // Between a poll and what it asks for nothing may fail: it says each thing once.
    done_.reserve(jobs_.size());
    of_group_.reserve(jobs_.size());
    ended_.reserve(ends_.size());
    rkv_tier_config config = rkv::Cache::tier_config();
    const std::string directory = settings.directory.string();
    // Host memory is divided as KV memory is.
    double all = 0;
    for (const TierPages& of : pages_) all += static_cast<double>(of.page_bytes * of.page_count);
    std::vector<rkv_tier_pool_config> pools;
    for (const TierPages& of : pages_) {
        const double part = static_cast<double>(of.page_bytes * of.page_count) / all;
        const double wanted = static_cast<double>(settings.host_bytes) * part;
        const std::uint64_t bytes = std::max(static_cast<std::uint64_t>(wanted), of.page_bytes);
        void* memory = settings.take_host_memory ? settings.take_host_memory(bytes) : nullptr;
        pools.push_back({of.page_bytes, bytes, memory});
    }
    if (!directory.empty()) {
        config.directory = directory.c_str();
        config.disk_bytes = settings.disk_bytes;
    }
    config.remote = settings.remote;
    write_fingerprint(model, settings.format, cache.page_size(), config.fingerprint);
    cache.attach_tiers(config, pools);
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
    if (has_remote_) return true;
    const auto there = unless_out_of_memory(
        [&] { return sequence.fetch(UINT64_MAX, RKV_FETCH_LOOK_ONLY).position_count; });
    return there.value_or(0) > 0;
}

bool Tiers::fetch(rkv::Sequence& sequence) {
    return unless_out_of_memory([&] { return sequence.fetch().is_open != 0; }).value_or(false);
}

std::optional<rkv_prefetch_id> Tiers::prefetch(const std::vector<std::uint32_t>& prompt,
                                               const rkv::Namespace& name_space) {
    const auto now = std::chrono::steady_clock::now();
    if (now < no_room_until_) return std::nullopt;
    const auto begun =
        unless_out_of_memory([&] { return cache_.prefetch(prompt, name_space); });
    // There is something, and others have all the room for it, or all memory. They end soon; asking
    // costs the prompt's digests, so it isn't done in each step.
    const bool is_refused = !begun || (begun->prefetch == 0 &&
                                       begun->position_count + begun->asked_position_count > 0);
    if (!is_refused) return begun->prefetch;
    no_room_until_ = now + std::chrono::milliseconds(20);
    return std::nullopt;
}

void Tiers::cancel_prefetch(rkv_prefetch_id prefetch) noexcept {
    try {
        cache_.cancel_prefetch(prefetch);
    } catch (const std::exception&) {
        // A broken cache takes it along.
    }
}

/// A state is copied as it lies.
void Tiers::copy_of_group(const TierPages& of) const {
    if (of.runner != nullptr) {
        of.runner->copy_tier_pages(of_group_);
        return;
    }
    for (const rkv_copy_job& job : of_group_) {
        float* state = of.states->at(job.page, 0);
        if (job.direction == RKV_COPY_LOAD)
            std::memcpy(state, job.host, job.byte_count);
        else
            std::memcpy(job.host, state, job.byte_count);
    }
}

/// Those of a group at a time. What fails to be copied is computed, or stays where it is: whatever
/// comes of it, the library hears how each job ended, or nobody would ever have those pages.
void Tiers::copy(std::size_t job_count) {
    for (std::uint32_t group = 0; group < pages_.size(); ++group) {
        of_group_.clear();
        std::copy_if(jobs_.begin(), jobs_.begin() + static_cast<std::ptrdiff_t>(job_count),
                     std::back_inserter(of_group_),
                     [&](const rkv_copy_job& job) { return job.group == group; });
        if (of_group_.empty()) continue;
        bool is_done = true;
        try {
            copy_of_group(pages_[group]);
        } catch (const std::exception&) {
            is_done = false;
        }
        done_.clear();
        for (const rkv_copy_job& job : of_group_) done_.push_back(job.job);
        cache_.complete(done_, is_done);
    }
}

bool Tiers::step() {
    ended_.clear();
    const auto got = unless_out_of_memory([&] { return cache_.poll(jobs_, ends_); });
    // Nothing was given out: the next step looks again.
    if (!got) return false;
    const auto job_count = static_cast<std::size_t>(got->job_count);
    const auto end_count = static_cast<std::size_t>(got->end_count);
    ended_.assign(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(end_count));
    if (job_count == 0) return end_count > 0;
    copy(job_count);
    return true;
}

}  // namespace engine
