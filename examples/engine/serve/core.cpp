#include "serve/core.hpp"

#include "serve/load_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

namespace engine {

namespace {

/// New positions of a row and its draft, whose masks are given where it branches.
rkv_plan_row plan_row_of(const StepRow& row, const std::vector<std::uint64_t>& masks) {
    const std::size_t count = row.count + row.draft.size();
    if (row.draft.is_chain()) return rkv::plan_row(row.branch->sequence, row.start, count);
    return rkv::plan_row(row.branch->sequence, row.start, count, {}, masks);
}

/// Settings that follow from others.
EngineConfig complete(EngineConfig config) {
    config.scheduler.max_running = std::max<std::size_t>(config.scheduler.max_running, 1);
    config.kv.slot_count = static_cast<std::uint32_t>(config.scheduler.max_running);
    const bool is_on_cpu = config.device == Device::cpu;
    config.kv.device = config.device;
    config.kv.graphs = !is_on_cpu && config.graphs;
    config.kv.model = config.model;
    // For nothing where the products are not: cuBLAS adds in another order for another batch size.
    config.kv.batch_invariant = is_on_cpu && config.gemm == Gemm::packed;
    if (!is_on_cpu) config.thread_count = 1;
    // Without it a request's namespace is its number, which the next process gives again.
    if (!config.prefix_caching) config.kv.tiers = {};
    keep_blas_on_one_thread();
    return config;
}

/// A salt is a text of any length; a namespace takes 32 bytes. Two digests of different texts.
rkv::Namespace namespace_of(const std::string& salt) {
    rkv::Namespace name_space;
    if (salt.empty()) return name_space;
    std::array<std::uint8_t, 32> bytes{};
    for (std::size_t half = 0; half < 2; ++half) {
        const std::string text = (half == 0 ? "0" : "1") + salt;
        const rkv::Digest digest = rkv::image_digest(text.data(), text.size());
        std::copy(digest.begin(), digest.end(), bytes.begin() + half * digest.size());
    }
    return name_space.salt(bytes);
}

constexpr auto anybody = [](const Request&) { return true; };

/// What went wrong, in a few words where there is no memory to say it.
template <class F> std::string described(F describe) noexcept {
    try {
        return describe();
    } catch (const std::exception&) {
        return "out of memory";  // so short that it needs none
    }
}

RequestResult result_of(Finish why, const char* error) noexcept {
    RequestResult result{};
    result.finish = why;
    result.error = described([&] { return std::string(error); });
    return result;
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Core::Core(const EngineConfig& config)
    : config_(complete(config)),
      pool_(config_.thread_count),
      model_(load_model(config_, pool_)),
      tokenizer_(load_tokenizer(config_.model, model_->config())),
      kv_(model_->config(), config_.kv, pool_),
      retained_(kv_.cache()),
      scheduler_(config_.scheduler, kv_, retained_, metrics_),
      decoder_(model_->config(), *tokenizer_, scheduler_, metrics_) {}

RequestSpec Core::accept(RequestSpec spec) const {
    if (spec.retain && config_.retain_nothing)
        throw InvalidRequest("retain: this server retains nothing");
    if (spec.retain && (spec.id.empty() || spec.id.find('.') != std::string::npos))
        throw InvalidRequest("id: what is retained needs one, without a dot");
    if (spec.continuation) resolve(spec);
    validate(spec);
    return spec;
}

/// Makes the prompt of a continuation.
void Core::resolve(RequestSpec& spec) const {
    Continuation& continuation = *spec.continuation;
    const std::optional<Parent> parent = retained_.find(continuation.parent);
    if (!parent) {
        if (spec.prompt.empty())
            throw UnknownParent("continuation_of: nothing is retained under " +
                                continuation.parent + "; a prompt with all tokens would do");
        return;
    }
    if (parent->cache_salt != spec.cache_salt)
        throw InvalidRequest("cache_salt: not that of the request that is continued");
    std::vector<std::uint32_t> tokens = *parent->tokens;
    tokens.insert(tokens.end(), continuation.suffix.begin(), continuation.suffix.end());
    if (!spec.prompt.empty() && spec.prompt != tokens)
        throw InvalidRequest("prompt: not the tokens of the request that is continued, and the "
                             "suffix");
    spec.prompt = std::move(tokens);
    continuation.tokens = parent->tokens;
}

std::size_t Core::longest_text() const {
    std::uint64_t positions = position_limit();
    for (std::uint32_t group = 0; group < kv_.groups().list().size(); ++group) {
        const std::uint64_t pages = pages_of(group);
        // What a window needs at most may be there, whatever comes.
        if (pages_needed(group, position_limit()) > pages)
            positions = std::min<std::uint64_t>(positions, pages * kv_.cache().page_size());
    }
    // The last token is never computed: it takes no position.
    return static_cast<std::size_t>(positions) + 1;
}

std::uint64_t Core::pages_of(std::uint32_t group) const {
    return kv_.groups().is_single() ? kv_.table().stats().total_page_count
                                    : kv_.table().pool_stats(group).total_page_count;
}

std::uint64_t Core::pages_needed(std::uint32_t group, std::uint64_t position_count) const {
    return kv_.groups().pages_for(group, position_count, config_.scheduler.chunk_size,
                                  kv_.cache().page_size());
}

void Core::validate(const RequestSpec& spec) const {
    if (spec.prompt.empty()) throw InvalidRequest("prompt: it has no tokens");
    if (spec.max_tokens == 0) throw InvalidRequest("max_tokens: at least one");
    if (spec.choice_count == 0) throw InvalidRequest("n: at least one");
    if (spec.choice_count > spec.width())
        throw InvalidRequest(std::string(spec.searches() ? "beam_width" : "best_of") +
                             ": fewer than n");
    if (!(spec.length_penalty >= 0)) throw InvalidRequest("length_penalty: negative");
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
    for (std::uint32_t group = 0; group < kv_.groups().list().size(); ++group) {
        const std::uint64_t needed = pages_needed(group, positions), pages = pages_of(group);
        if (needed > pages)
            throw InvalidRequest(asked + " need " + std::to_string(needed) + " pages of " +
                                 (group == 0 ? "KV memory" : "the windows' KV memory") +
                                 "; there are " + std::to_string(pages));
    }
}

void Core::add(std::uint64_t number, RequestSpec spec, std::shared_ptr<Listener> listener,
               Clock::time_point submitted) {
    try {
        auto made = std::make_unique<Request>(number, std::move(spec), listener);
        Request& request = *made;
        request.submitted = submitted;
        set_namespace(request);
        scheduler_.add(std::move(made));
        if (request.spec.retain) retained_.expect(request.spec.id);
    } catch (const std::exception& error) {
        // It fails alone: others run.
        if (scheduler_.find(number) != nullptr) {
            finish(number, Finish::error, error.what());
        } else {
            ++metrics_.finished_error;
            listener->on_finish(result_of(Finish::error, error.what()));
        }
    }
    update_gauges();
}

/// Sequences share pages by way of the cache. Without prefix caching that of a request that is not
/// alone is its own, so that no other one finds anything there.
void Core::set_namespace(Request& request) {
    const RequestSpec& spec = request.spec;
    request.name_space = namespace_of(spec.cache_salt);
    request.publishes =
        config_.prefix_caching || spec.retain || spec.continuation || spec.width() > 1;
    if (!config_.prefix_caching) request.name_space.epoch(request.number);
    if (!spec.continuation) return;
    if (const std::optional<Parent> parent = retained_.parent_of(*spec.continuation))
        request.name_space = parent->name_space;
}

void Core::cancel(std::uint64_t number) { finish(number, Finish::cancelled); }

void Core::cancel_left() {
    const auto has_left = [](const Request& request) { return request.listener->has_left(); };
    while (const Request* request = scheduler_.first(has_left)) cancel(request->number);
}

void Core::cancel_all() {
    while (const Request* request = scheduler_.first(anybody)) cancel(request->number);
}

bool Core::step() {
    if (!healthy_) {
        // Also where a step would do: what it computed would rest on what is broken.
        fail_step("the engine is broken");
        update_gauges();
        return false;
    }
    bool worked = true;
    try {
        worked = try_step();
    } catch (const rkv::Error& error) {
        if (error.status() >= RKV_STATUS_INTERNAL) healthy_ = false;
        const std::string message = described([&] {
            return std::string(rkv::status_name(error.status())) + ": " + error.what();
        });
        fail_step(message.c_str());
    } catch (const DeviceLost& error) {
        healthy_ = false;
        fail_step(error.what());
    } catch (const std::exception& error) {
        fail_step(error.what());
    }
    update_gauges();
    // There is nobody left to work for, and the next one will be told why.
    return worked && healthy_;
}

bool Core::try_step() {
    tokens_.clear();
    in_step_.clear();
    StepClock clock(model_->times());
    const bool copied = scheduler_.take_fetched();
    const std::vector<StepRow>& rows = scheduler_.plan();
    clock.charge(Work::schedule);
    if (rows.empty()) {
        if (!scheduler_.is_fetching()) return copied;
        // Nobody else has anything to compute.
        if (!copied) std::this_thread::sleep_for(std::chrono::microseconds(100));
        clock.charge(Work::fetch);
        return true;
    }
    const auto start = Clock::now();
    compute(rows, clock);
    metrics_.step_time.observe(seconds_between(start, Clock::now()));
    ++metrics_.steps;
    metrics_.computed_tokens += tokens_.ids.size();
    return true;
}

/// One forward pass over all rows, then what follows for each of them.
void Core::compute(const std::vector<StepRow>& planned, StepClock& clock) {
    // First, so that what fails takes these with it and nobody else.
    in_step_.reserve(planned.size());
    for (const StepRow& row : planned) in_step_.push_back(row.request->number);
    // Requests leave the scheduler as they finish; the rows of others stay good.
    const std::vector<StepRow> rows = planned;
    std::vector<bool> reaches_end;
    plan_rows_.clear();
    tree_masks_.resize(std::max(tree_masks_.size(), rows.size()));
    for (const StepRow& row : rows) {
        reaches_end.push_back(row.reaches_end());
        const std::vector<std::uint32_t>& tokens = row.branch->tokens;
        for (std::size_t i = row.start; i < row.start + row.count; ++i) {
            tokens_.ids.push_back(tokens[i]);
            tokens_.positions.push_back(i);
        }
        if (row.reaches_end()) tokens_.logit_rows.push_back(tokens_.ids.size() - 1);
        const std::vector<std::size_t> depths = row.draft.depths(tree_masks_[plan_rows_.size()]);
        for (std::size_t i = 0; i < row.draft.size(); ++i) {
            tokens_.positions.push_back(row.start + row.count - 1 + depths[i + 1]);
            tokens_.ids.push_back(row.draft.tokens[i]);
            tokens_.logit_rows.push_back(tokens_.ids.size() - 1);
        }
        plan_rows_.push_back(plan_row_of(row, tree_masks_[plan_rows_.size()]));
    }
    if (config_.before_forward) config_.before_forward(tokens_.ids.size());
    clock.charge(Work::schedule);
    kv_.plan(plan_rows_);
    clock.charge(Work::plan);
    const float* logits = model_->forward(tokens_, kv_);
    if (config_.device == Device::cpu)
        clock.skip();
    else
        clock.charge(Work::products);
    const Clock::time_point now = Clock::now();
    settle_drafts(rows, logits);
    scheduler_.note_computed(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!reaches_end[i]) continue;
        take_row(rows[i], in_step_[i], accepted_[i], logits, now);
        logits += model_config().vocab_size * (1 + rows[i].draft.size());
    }
    clock.charge(Work::draw);
}

/// Which tokens of the drafts hold. Their K and V go to where they belong before anything is
/// published: the plan is good until then.
void Core::settle_drafts(const std::vector<StepRow>& rows, const float* logits) {
    accepted_.assign(rows.size(), {});
    std::vector<std::vector<std::uint32_t>> positions(rows.size());
    std::vector<rkv_kept_branch> branches;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const StepRow& row = rows[i];
        if (!row.reaches_end()) continue;
        if (!row.draft.empty())
            accepted_[i] = decoder_.accept(*row.request, *row.branch, row.draft, logits);
        logits += model_config().vocab_size * (1 + row.draft.size());
        if (row.draft.is_chain() || accepted_[i].empty()) continue;
        // The row's own token, and of the draft those behind it.
        positions[i].push_back(0);
        for (const std::size_t at : accepted_[i])
            positions[i].push_back(static_cast<std::uint32_t>(at + 1));
        branches.push_back({static_cast<std::uint32_t>(i),
                            static_cast<std::uint32_t>(positions[i].size()),
                            positions[i].data()});
    }
    kv_.keep_branches(branches);
    metrics_.kept_branches += std::count_if(
        branches.begin(), branches.end(), [](const rkv_kept_branch& branch) {
            return branch.positions[branch.position_count - 1] >= branch.position_count;
        });
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (!rows[i].draft.empty()) scheduler_.settle_draft(rows[i], accepted_[i]);
}

/// A token is drawn after a row, and one after each token of its draft that was drawn.
void Core::take_row(const StepRow& row, std::uint64_t number,
                    const std::vector<std::size_t>& accepted, const float* logits,
                    Clock::time_point now) {
    // The last one to be drawn is no token of the draft.
    metrics_.accepted_tokens += accepted.empty() ? 0 : 1;
    take(number, *row.branch, logits, now);
    for (std::size_t i = 0; i < accepted.size(); ++i) {
        if (scheduler_.find(number) == nullptr || row.branch->finished) return;
        row.branch->knows_all();
        ++row.branch->computed;
        metrics_.accepted_tokens += i + 1 < accepted.size() ? 1 : 0;
        take(number, *row.branch, logits + model_config().vocab_size * (accepted[i] + 1), now);
    }
}

/// Hands the logits of a branch on, if its request is still there.
void Core::take(std::uint64_t number, Branch& branch, const float* logits,
                Clock::time_point now) {
    Request* request = scheduler_.find(number);
    if (request == nullptr) return;
    const std::size_t vocab_size = model_config().vocab_size;
    if (!std::all_of(logits, logits + vocab_size, [](float x) { return std::isfinite(x); }))
        return finish(number, Finish::error, "the model computed infinities or NaN");
    if (const std::optional<Finish> over = decoder_.take(*request, branch, logits, now))
        finish(number, *over);
}

/// Throws where an answer fails, and then the request is still here. Without an answer it needs no
/// memory; nor does it once the request is taken out, so that somebody hears of its end.
void Core::finish(std::uint64_t number, Finish why, const char* error) {
    Request* here = scheduler_.find(number);
    if (here == nullptr) return;
    RequestResult result = result_of(why, error);
    if (why == Finish::stop || why == Finish::length) answer(*here, result);
    const std::unique_ptr<Request> request = scheduler_.remove(number);
    if (request->spec.retain) retained_.settle(request->spec.id);
    switch (why) {
        case Finish::stop: ++metrics_.finished_stop; break;
        case Finish::length: ++metrics_.finished_length; break;
        case Finish::cancelled: ++metrics_.finished_cancelled; break;
        case Finish::error: ++metrics_.finished_error; break;
    }
    result.prompt_tokens = request->spec.prompt.size();
    result.cached_tokens = request->cached_tokens;
    result.inherited_tokens = request->inherited_tokens;
    if (!request->spec.searches())
        for (const auto& branch : request->branches)
            result.completion_tokens += request->generated(*branch);
    result.preemptions = request->preemptions;
    if (request->first_token)
        result.first_token_seconds = seconds_between(request->submitted, *request->first_token);
    request->listener->on_finish(std::move(result));
}

/// The choices of a request that ended well. What is retained of some is dropped when another one
/// fails: nobody would hear of it.
void Core::answer(Request& request, RequestResult& result) {
    const std::vector<Branch*> branches = request.answer();
    result.choices.reserve(branches.size());
    try {
        for (std::size_t i = 0; i < branches.size(); ++i) {
            Branch& branch = *branches[i];
            ChoiceResult choice{request.spec.searches() ? i : branch.number, *branch.finished,
                                branch.text.finish(), {}, {}};
            if (request.ranks()) choice.logprob = branch.logprob;
            if (request.spec.searches()) {
                Decoder::tell(request, branch, i);
                result.completion_tokens += request.generated(branch);
            }
            choice.retained_id = retain(request, branch, i);
            result.choices.push_back(std::move(choice));
        }
    } catch (...) {
        for (const ChoiceResult& choice : result.choices)
            if (!choice.retained_id.empty()) (void)retained_.drop(choice.retained_id);
        throw;
    }
}

/// Keeps a choice that others are to go on from. Whoever had to give his pages away meanwhile has
/// nothing to keep. Returns its id, or nothing.
std::string Core::retain(const Request& request, Branch& branch, std::size_t choice) {
    if (!request.spec.retain || !branch.holds_pages()) return {};
    // Children take over what is computed as far as the library knows of it. What was forked in the
    // last step has computed nothing yet: it is kept without the page that it would have copied.
    if (branch.sequence.info().copy_count == 0) scheduler_.publish(branch);
    Parent parent;
    parent.sequence_tokens = branch.sequence_tokens;
    parent.tokens = std::make_shared<const std::vector<std::uint32_t>>(branch.tokens);
    parent.cache_salt = request.spec.cache_salt;
    parent.name_space = request.name_space;
    std::string id = choice_id(request.spec.id, choice);
    if (!retained_.put(id, branch.sequence, std::move(parent))) id.clear();
    return id;
}

/// A step that failed takes its requests with it; those that wait are not touched. When it failed
/// while it was planned, it takes the request that the trouble was with; when nothing works any
/// more, all of them.
void Core::fail_step(const char* message) {
    if (!healthy_) {
        while (const Request* request = scheduler_.first(anybody))
            finish(request->number, Finish::error, message);
    } else if (in_step_.empty()) {
        finish(scheduler_.blamed(), Finish::error, message);
    } else {
        for (const std::uint64_t number : in_step_) finish(number, Finish::error, message);
    }
}

void Core::update_gauges() {
    metrics_.waiting = scheduler_.waiting();
    metrics_.running = scheduler_.running();
}

}  // namespace engine
