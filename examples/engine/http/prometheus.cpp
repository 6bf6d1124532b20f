#include "http/prometheus.hpp"

#include <cstdint>
#include <utility>

namespace engine {

namespace {

class Page {
public:
    void counter(const std::string& name, const char* help, std::uint64_t value) {
        head(name, help, "counter");
        line(name, value);
    }
    void gauge(const std::string& name, const char* help, std::uint64_t value) {
        head(name, help, "gauge");
        line(name, value);
    }
    void head(const std::string& name, const char* help, const char* type) {
        text_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
    }
    void line(const std::string& name, std::uint64_t value) {
        text_ += name + " " + std::to_string(value) + "\n";
    }
    void seconds(const std::string& name, std::uint64_t nanoseconds) {
        text_ += name + " " + std::to_string(static_cast<double>(nanoseconds) / 1e9) + "\n";
    }
    void histogram(const std::string& name, const char* help, const Histogram& values) {
        text_ += "# HELP " + name + " " + help + "\n";
        values.write(name, text_);
    }
    [[nodiscard]] std::string take() { return std::move(text_); }

private:
    std::string text_;
};

void write_requests(const Metrics& metrics, Page& page) {
    const std::string name = "engine_requests_finished_total";
    page.head(name, "Requests that are over, by why.", "counter");
    page.line(name + "{reason=\"stop\"}", metrics.finished_stop);
    page.line(name + "{reason=\"length\"}", metrics.finished_length);
    page.line(name + "{reason=\"cancelled\"}", metrics.finished_cancelled);
    page.line(name + "{reason=\"error\"}", metrics.finished_error);
    page.gauge("engine_requests_waiting", "Requests that wait to begin.", metrics.waiting);
    page.gauge("engine_requests_running", "Requests that hold pages.", metrics.running);
    page.counter("engine_preemptions_total", "Times that a sequence gave its pages to others.",
                 metrics.preemptions);
    page.histogram("engine_time_to_first_token_seconds", "From arrival to the first token.",
                   metrics.time_to_first_token);
    page.histogram("engine_inter_token_latency_seconds", "From one token to the next.",
                   metrics.inter_token_latency);
}

void write_tokens(const Metrics& metrics, Page& page) {
    page.counter("engine_prompt_tokens_total", "Prompt tokens of requests that began.",
                 metrics.prompt_tokens);
    page.counter("engine_prompt_tokens_cached_total", "Of those, tokens found in the cache.",
                 metrics.cached_tokens);
    page.counter("engine_prefix_cache_hits_total",
                 "Requests that found some of their prompt in the cache.", metrics.cache_hits);
    page.counter("engine_prefix_cache_misses_total", "Requests that found none.",
                 metrics.cache_misses);
    page.counter("engine_prompt_tokens_inherited_total",
                 "Prompt tokens taken over from the request that was continued.",
                 metrics.inherited_tokens);
    page.counter("engine_generated_tokens_total", "Tokens generated.", metrics.generated_tokens);
    page.counter("engine_drafted_tokens_total", "Tokens computed as drafts.",
                 metrics.drafted_tokens);
    page.counter("engine_accepted_tokens_total", "Of those, tokens that were drawn.",
                 metrics.accepted_tokens);
    page.counter("engine_computed_tokens_total", "Tokens that went through the model.",
                 metrics.computed_tokens);
    page.counter("engine_steps_total", "Forward passes.", metrics.steps);
    page.histogram("engine_step_seconds", "Time of a forward pass.", metrics.step_time);
}

void write_step_times(const StepTimes& times, Page& page) {
    const std::string name = "engine_work_seconds_total";
    page.head(name, "Time of steps, by what it was spent on.", "counter");
    for (std::size_t i = 0; i < times.size(); ++i)
        page.seconds(name + "{work=\"" + work_names[i] + "\"}", times[i]);
}

void write_sequences(const Metrics& metrics, const rkv_cache_stats& cache, Page& page) {
    const std::string name = "engine_continuations_total";
    page.head(name, "Continuations that began, by where they did.", "counter");
    page.line(name + "{from=\"parent\"}", metrics.continuations);
    page.line(name + "{from=\"lookup\"}", metrics.continuation_fallbacks);
    page.gauge("engine_retained_sequences", "Finished sequences kept for continuations.",
               cache.retained_sequence_count);
    page.gauge("engine_retained_pages", "Pages that those keep.", cache.retained_page_count);
    page.counter("engine_displaced_sequences_total", "Retained sequences that gave way.",
                 cache.displaced_sequence_count);
    page.counter("engine_forks_total", "Sequences forked from another one.", metrics.forks);
    page.counter("engine_dropped_beams_total", "Beams that others outdid.",
                 metrics.dropped_beams);
    page.counter("engine_saved_states_total",
                 "States of recurrent layers saved for others to begin with.",
                 metrics.saved_states);
    page.counter("engine_unsaved_states_total", "States for which there was no page.",
                 metrics.unsaved_states);
}

/// Of models with several kinds of layers, each of which has pages of its own; the first is the one
/// above.
void write_groups(const Kv& kv, Page& page) {
    const std::string name = "engine_group_pages";
    page.head(name, "Pages by kind of layer and state.", "gauge");
    const std::vector<LayerGroup>& groups = kv.groups().list();
    for (std::uint32_t group = 0; group < groups.size(); ++group) {
        const char* kind = groups[group].kind == LayerKind::full     ? "full"
                           : groups[group].kind == LayerKind::window ? "window"
                                                                     : "state";
        const rkv_pool_stats pool = kv.table().pool_stats(group);
        const auto line = [&](const char* state, std::uint64_t count) {
            page.line(name + "{group=\"" + kind + "\",state=\"" + state + "\"}", count);
        };
        line("free", pool.free_page_count);
        line("cached", pool.cached_page_count);
        line("private", pool.private_page_count);
        line("reclaimable", pool.reclaimable_page_count);
    }
}

void write_pages(const Kv& kv, const rkv_cache_stats& cache, Page& page) {
    const rkv_page_table_stats pages = kv.table().stats();
    const std::string name = "engine_kv_pages";
    page.head(name, "Pages of KV memory by state; reclaimable ones are among the cached.",
              "gauge");
    page.line(name + "{state=\"free\"}", pages.free_page_count);
    page.line(name + "{state=\"cached\"}", pages.cached_page_count);
    page.line(name + "{state=\"private\"}", pages.private_page_count);
    page.line(name + "{state=\"reclaimable\"}", pages.reclaimable_page_count);
    page.gauge("engine_kv_pages_total", "Pages of KV memory.", pages.total_page_count);
    if (!kv.groups().is_single()) write_groups(kv, page);
    page.counter("engine_evicted_pages_total", "Cached pages that made room for others.",
                 cache.evicted_page_count);
    page.counter("engine_published_pages_total", "Pages that requests gave to the cache.",
                 cache.inserted_page_count);
    page.gauge("engine_cache_nodes", "Nodes of the prefix tree.", cache.node_count);
    page.gauge("engine_cache_index_bytes", "Host memory of the prefix tree.", cache.index_bytes);
}

void write_tiers(const Core& core, Page& page) {
    const rkv_tier_stats tiers = core.kv().cache().tier_stats();
    page.counter("engine_fetched_tokens_total", "Prompt tokens brought from a tier.",
                 core.metrics().fetched_tokens);
    const std::pair<const char*, const rkv_tier_totals*> both[] = {{"host", &tiers.host},
                                                                   {"disk", &tiers.disk}};
    const auto write = [&](const char* what, const char* text, const char* kind, auto field) {
        const std::string name = std::string("engine_tier_") + what;
        page.head(name, text, kind);
        for (const auto& [tier, totals] : both)
            page.line(name + "{tier=\"" + tier + "\"}", totals->*field);
    };
    write("pages", "Pages in a tier.", "gauge", &rkv_tier_totals::page_count);
    write("bytes", "Bytes in use in a tier.", "gauge", &rkv_tier_totals::used_bytes);
    write("stored_pages_total", "Pages that came into a tier.", "counter",
          &rkv_tier_totals::stored_page_count);
    write("fetched_pages_total", "Pages that were fetched from a tier.", "counter",
          &rkv_tier_totals::fetched_page_count);
    write("evicted_pages_total", "Pages that a tier gave up.", "counter",
          &rkv_tier_totals::evicted_page_count);
    write("damaged_pages_total", "Pages dropped for changed bytes.", "counter",
          &rkv_tier_totals::damaged_page_count);
    write("failures_total", "Copies, reads and writes that failed.", "counter",
          &rkv_tier_totals::failed_count);
    const rkv_remote_totals& remote = tiers.remote;
    page.counter("engine_remote_asked_pages_total", "Pages the remote store was asked for.",
                 remote.asked_page_count);
    page.counter("engine_remote_found_pages_total", "Pages that it had.", remote.found_page_count);
    page.counter("engine_remote_fetched_pages_total", "Pages that were fetched from it.",
                 remote.fetched_page_count);
    page.counter("engine_remote_written_pages_total", "Pages that were written to it.",
                 remote.written_page_count);
    page.counter("engine_remote_damaged_pages_total", "Pages of it with changed bytes.",
                 remote.damaged_page_count);
    page.counter("engine_remote_failed_pages_total", "Pages that a call failed for.",
                 remote.failed_page_count);
    page.counter("engine_remote_pauses_total", "Times that it failed too often.",
                 remote.pause_count);
    page.gauge("engine_remote_waiting_pages", "Pages that wait to be written to it.",
               remote.waiting_page_count);
    const std::string calls = "engine_remote_call_seconds_total";
    page.head(calls, "Time of all calls to it.", "counter");
    page.seconds(calls, remote.call_ns);
    page.counter("engine_remote_calls_total", "Calls to it.", remote.call_count);
    page.counter("engine_remote_slow_calls_total", "Calls that took too long.",
                 remote.slow_call_count);
    const std::string ends = "engine_tier_fetches_total";
    page.head(ends, "Fetches that ended, by how.", "counter");
    page.line(ends + "{end=\"complete\"}", tiers.complete_count);
    page.line(ends + "{end=\"shortened\"}", tiers.shortened_count);
    page.line(ends + "{end=\"abandoned\"}", tiers.abandoned_count);
    page.counter("engine_tier_late_fetches_total", "Fetches that a deadline ended.",
                 tiers.late_count);
    page.gauge("engine_tier_open_fetches", "Fetches that go on.", tiers.open_fetch_count);
    const std::string took = "engine_tier_fetch_seconds_total";
    page.head(took, "Time of all fetches, from begin to end.", "counter");
    page.seconds(took, tiers.fetch_ns);
    page.counter("engine_tier_prefetches_total", "Prefetches for requests that waited.",
                 tiers.prefetch_count);
    page.counter("engine_tier_refused_prefetches_total", "Prefetches without room.",
                 tiers.refused_prefetch_count);
    const std::string prefetched = "engine_tier_prefetched_pages_total";
    page.head(prefetched, "Pages that prefetches brought to host memory.", "counter");
    page.line(prefetched + "{tier=\"disk\"}", tiers.prefetched_disk_page_count);
    page.line(prefetched + "{tier=\"remote\"}", tiers.prefetched_remote_page_count);
    page.counter("engine_tier_throttled_pages_total", "Pages not stored: too many waited.",
                 tiers.throttled_page_count);
    page.counter("engine_tier_cleared_pages_total", "Pages that went with their namespace.",
                 tiers.cleared_page_count);
    page.counter("engine_tier_lost_pages_total", "Pages evicted before they were stored.",
                 tiers.lost_page_count);
}

}  // namespace

std::string prometheus_text(const Core& core) {
    Page page;
    write_requests(core.metrics(), page);
    write_tokens(core.metrics(), page);
    write_step_times(core.step_times(), page);
    const rkv_cache_stats cache = core.kv().cache().stats();
    write_sequences(core.metrics(), cache, page);
    write_pages(core.kv(), cache, page);
    if (core.has_tiers()) write_tiers(core, page);
    return page.take();
}

}  // namespace engine
