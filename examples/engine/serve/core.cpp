#include "serve/core.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace engine {

namespace {

/// Settings that follow from others.
EngineConfig complete(EngineConfig config) {
    config.scheduler.max_running = std::max<std::size_t>(config.scheduler.max_running, 1);
    config.kv.slot_count = static_cast<std::uint32_t>(config.scheduler.max_running);
    config.kv.batch_invariant = config.gemm == Gemm::packed;
    keep_blas_on_one_thread();
    return config;
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Core::Core(const EngineConfig& config)
    : config_(complete(config)),
      pool_(config_.thread_count),
      model_(config_.model, config_.max_positions, config_.gemm, pool_),
      kv_(model_.config(), config_.kv, pool_),
      scheduler_(config_.scheduler, kv_, metrics_) {}

void Core::validate(const RequestSpec& spec) const {
    if (spec.prompt.empty()) throw InvalidRequest("prompt: it has no tokens");
    if (spec.max_tokens == 0) throw InvalidRequest("max_tokens: at least one");
    for (const std::uint32_t id : spec.prompt)
        if (id >= model_config().vocab_size)
            throw InvalidRequest("prompt: there is no token " + std::to_string(id) +
                                 "; the vocabulary has " +
                                 std::to_string(model_config().vocab_size));
    // The last token is never computed: it takes no position.
    const std::size_t positions = spec.prompt.size() - 1 + spec.max_tokens;
    const std::string asked = "prompt: " + std::to_string(spec.prompt.size()) +
                              " tokens and max_tokens " + std::to_string(spec.max_tokens);
    if (spec.max_tokens > position_limit() || positions > position_limit())
        throw InvalidRequest(asked + " exceed the limit of " + std::to_string(position_limit()) +
                             " positions");
    const std::uint64_t pages = kv_.table().stats().total_page_count;
    if (kv_.pages_for(positions) > pages)
        throw InvalidRequest(asked + " need " + std::to_string(kv_.pages_for(positions)) +
                             " pages of KV memory; there are " + std::to_string(pages));
}

void Core::add(std::uint64_t number, RequestSpec spec, std::shared_ptr<Listener> listener,
               Clock::time_point submitted) {
    auto request = std::make_unique<Request>(number, std::move(spec), std::move(listener));
    request->submitted = submitted;
    scheduler_.add(std::move(request));
    update_gauges();
}

void Core::cancel(std::uint64_t number) { finish(number, Finish::cancelled); }

void Core::cancel_all() {
    for (const std::uint64_t number : scheduler_.numbers()) cancel(number);
}

bool Core::step() {
    bool worked = true;
    try {
        worked = try_step();
    } catch (const rkv::Error& error) {
        if (error.status() >= RKV_STATUS_INTERNAL) healthy_ = false;
        fail_step(std::string(rkv::status_name(error.status())) + ": " + error.what());
    } catch (const std::exception& error) {
        fail_step(error.what());
    }
    update_gauges();
    return worked;
}

bool Core::try_step() {
    tokens_.clear();
    in_step_.clear();
    const std::vector<StepRow>& rows = scheduler_.plan();
    if (rows.empty()) return false;
    const auto start = Clock::now();
    compute(rows);
    metrics_.step_time.observe(seconds_between(start, Clock::now()));
    ++metrics_.steps;
    metrics_.computed_tokens += tokens_.ids.size();
    return true;
}

/// One forward pass over all rows, then what follows for each of them.
void Core::compute(const std::vector<StepRow>& planned) {
    // Requests leave the scheduler as they finish; the rows of others stay good.
    const std::vector<StepRow> rows = planned;
    plan_rows_.clear();
    for (const StepRow& row : rows) {
        in_step_.push_back(row.request->number);
        const std::vector<std::uint32_t>& tokens = row.request->tokens;
        for (std::size_t i = row.start; i < row.start + row.count; ++i) {
            tokens_.ids.push_back(tokens[i]);
            tokens_.positions.push_back(i);
        }
        if (row.reaches_end()) tokens_.logit_rows.push_back(tokens_.ids.size() - 1);
        plan_rows_.push_back(rkv::plan_row(row.request->sequence, row.start, row.count));
    }
    if (config_.before_forward) config_.before_forward(tokens_.ids.size());
    kv_.plan(plan_rows_);
    const float* logits = model_.forward(tokens_, kv_);
    const Clock::time_point now = Clock::now();
    for (const StepRow& row : rows) {
        row.request->computed += row.count;
        if (config_.prefix_caching) publish(*row.request);
    }
    for (const StepRow& row : rows) {
        if (!row.reaches_end()) continue;
        emit(row, logits, now);
        logits += model_config().vocab_size;
    }
}

/// After every chunk, and as generated tokens fill pages: who comes next finds what is there.
void Core::publish(Request& request) {
    const std::size_t page_size = kv_.cache().page_size();
    if (request.computed / page_size == request.published_pages) return;
    request.sequence.publish(request.computed);
    request.published_pages = request.computed / page_size;
}

/// Draws the next token of a request and tells its listener.
void Core::emit(const StepRow& row, const float* logits, Clock::time_point now) {
    Request& request = *row.request;
    const std::size_t vocab_size = model_config().vocab_size;
    if (!std::all_of(logits, logits + vocab_size, [](float x) { return std::isfinite(x); }))
        return finish(request.number, Finish::error, "the model computed infinities or NaN");
    const std::uint32_t id =
        sample(logits, vocab_size, request.spec.sampling, request.generated());
    request.tokens.push_back(id);
    observe_token(request, now);
    const std::vector<std::uint32_t>& ends = model_config().eos_token_ids;
    const bool ended =
        !request.spec.ignore_eos && std::find(ends.begin(), ends.end(), id) != ends.end();
    const std::string text = ended ? std::string() : request.text.push(decode(id));
    request.listener->on_token({id, text, logits, vocab_size});
    if (ended || request.text.stopped())
        finish(request.number, Finish::stop);
    else if (request.generated() == request.spec.max_tokens)
        finish(request.number, Finish::length);
}

void Core::observe_token(Request& request, Clock::time_point now) {
    if (request.generated() == 1)
        metrics_.time_to_first_token.observe(seconds_between(request.submitted, now));
    else
        metrics_.inter_token_latency.observe(seconds_between(request.latest, now));
    request.latest = now;
    ++metrics_.generated_tokens;
}

void Core::finish(std::uint64_t number, Finish why, const std::string& error) {
    const std::unique_ptr<Request> request = scheduler_.remove(number);
    if (request == nullptr) return;
    switch (why) {
        case Finish::stop: ++metrics_.finished_stop; break;
        case Finish::length: ++metrics_.finished_length; break;
        case Finish::cancelled: ++metrics_.finished_cancelled; break;
        case Finish::error: ++metrics_.finished_error; break;
    }
    RequestResult result;
    result.finish = why;
    result.text = request->text.finish();
    result.error = error;
    result.prompt_tokens = request->spec.prompt.size();
    result.cached_tokens = request->cached_tokens;
    result.completion_tokens = request->generated();
    result.preemptions = request->preemptions;
    request->listener->on_finish(result);
}

/// A step that failed takes its requests with it; those that wait are not touched. When it failed
/// while it was planned, it takes the request that the trouble was with.
void Core::fail_step(const std::string& message) {
    if (in_step_.empty()) in_step_ = {scheduler_.blamed()};
    for (const std::uint64_t number : in_step_) finish(number, Finish::error, message);
}

void Core::update_gauges() {
    metrics_.waiting = scheduler_.waiting();
    metrics_.running = scheduler_.running();
}

}  // namespace engine
