#include "serve/decoder.hpp"

#include "serve/sampler.hpp"

#include <algorithm>
#include <utility>

namespace engine {

namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

/// Whether it goes on.
bool is_live(const std::unique_ptr<Branch>& branch) { return !branch->finished; }

/// A finished branch has no use for its pages, unless others are to go on from it.
void finish_branch(const Request& request, Branch& branch, Finish why) {
    branch.finished = why;
    if (!request.spec.retain) branch.release_pages();
}

/// The next beams of a search, out of those that are there.
class Succession {
public:
    Succession(const Request& request, Scheduler& scheduler) : scheduler_(scheduler) {
        for (const auto& branch : request.branches)
            if (is_live(branch)) beams_.push_back(branch.get());
        sequences_.resize(beams_.size());
    }
    [[nodiscard]] const std::vector<Branch*>& beams() const { return beams_; }

    /// Beams that nothing with a use for pages follows lose theirs, then the others are forked.
    void fork(const BeamStep& step, bool live_keeps_pages, bool ended_keeps_pages,
              Metrics& metrics) {
        std::vector<std::size_t> followers(beams_.size(), 0), children(beams_.size(), 0);
        const auto count = [&](const std::vector<Extension>& extensions, bool keeps_pages) {
            for (const Extension& next : extensions) {
                ++followers[next.beam];
                children[next.beam] += keeps_pages ? 1 : 0;
            }
        };
        count(step.live, live_keeps_pages);
        count(step.ended, ended_keeps_pages);
        for (std::size_t b = 0; b < beams_.size(); ++b) {
            if (children[b] == 0) beams_[b]->release_pages();
            metrics.dropped_beams += followers[b] == 0 ? 1 : 0;
        }
        for (std::size_t b = 0; b < beams_.size(); ++b) {
            if (children[b] > 1) sequences_[b] = scheduler_.fork(*beams_[b], children[b] - 1);
            metrics.forks += sequences_[b].size();
        }
    }
    /// A branch that is one token longer than its beam.
    std::unique_ptr<Branch> extend(const Extension& next) {
        Branch& beam = *beams_[next.beam];
        std::unique_ptr<Branch> branch = beam.copy();
        const Candidate& token = beam.candidates[next.candidate];
        branch->tokens.push_back(token.id);
        branch->logprob = next.logprob;
        branch->beam_tokens.push_back({token.id, {}, {token.logprob, beam.top}});
        return branch;
    }
    /// Gives a branch a sequence of its own: a child of its beam's, in the end the beam's itself.
    void hand_over(const Extension& next, Branch& branch) {
        Branch& beam = *beams_[next.beam];
        std::vector<rkv::Sequence>& children = sequences_[next.beam];
        if (!children.empty()) {
            branch.adopt(std::move(children.back()), beam);
            children.pop_back();
        } else if (beam.holds_pages()) {
            branch.adopt(std::exchange(beam.sequence, rkv::Sequence()), beam);
        }
    }

private:
    Scheduler& scheduler_;
    std::vector<Branch*> beams_;
    /// Children of each beam that nobody has yet.
    std::vector<std::vector<rkv::Sequence>> sequences_;
};

/// Keeps as many finished beams as may be returned, the best ones.
void keep_best_finished(Request& request) {
    std::vector<const Branch*> finished;
    for (const auto& branch : request.branches)
        if (branch->finished) finished.push_back(branch.get());
    if (finished.size() <= request.spec.choice_count) return;
    std::stable_sort(finished.begin(), finished.end(), [&](const Branch* a, const Branch* b) {
        return request.score(*a) > request.score(*b);
    });
    finished.erase(finished.begin(),
                   finished.begin() + static_cast<std::ptrdiff_t>(request.spec.choice_count));
    const auto lost = [&](const std::unique_ptr<Branch>& branch) {
        return std::find(finished.begin(), finished.end(), branch.get()) != finished.end();
    };
    request.branches.erase(
        std::remove_if(request.branches.begin(), request.branches.end(), lost),
        request.branches.end());
}

/// Whether beams that go on could still be among those that are returned.
bool is_decided(const Request& request) {
    const RequestSpec& spec = request.spec;
    std::size_t finished = 0;
    double worst = 0, hope = -1e300;
    for (const auto& branch : request.branches) {
        if (is_live(branch)) {
            hope = std::max(hope, best_possible_score(branch->logprob, spec.max_tokens,
                                                      spec.length_penalty));
        } else {
            const double score = request.score(*branch);
            worst = finished == 0 ? score : std::min(worst, score);
            ++finished;
        }
    }
    return finished >= spec.choice_count && worst > hope;
}

}  // namespace

std::optional<Finish> Decoder::take(Request& request, Branch& branch, const float* logits,
                                    Clock::time_point now) {
    if (request.spec.searches()) {
        note_candidates(request, branch, logits);
        // Beams are compared when all of them are so far.
        for (const auto& other : request.branches)
            if (is_live(other) && other->candidates.empty()) return std::nullopt;
        search(request, now);
    } else if (request.branched) {
        draw(request, branch, logits, now);
    } else {
        begin_samples(request);
        for (const auto& sample : request.branches) draw(request, *sample, logits, now);
    }
    if (std::any_of(request.branches.begin(), request.branches.end(), is_live))
        return std::nullopt;
    return request.answer().front()->finished;
}

/// The draw depends on the logits and on how many tokens came before: it can be known ahead.
std::uint32_t Decoder::next_token(const Request& request, const Branch& branch,
                                  const float* logits, std::size_t ahead) const {
    Sampling sampling = request.spec.sampling;
    sampling.seed = sample_seed(sampling.seed, branch.number);
    return sample(logits, model_.vocab_size, sampling, request.generated(branch) + ahead);
}

std::vector<std::size_t> Decoder::accept(const Request& request, const Branch& branch,
                                         const Draft& draft, const float* logits) const {
    std::vector<std::size_t> accepted;
    for (std::size_t at = Draft::root;;) {
        const float* after = logits + (at + 1) * model_.vocab_size;
        const std::uint32_t id = next_token(request, branch, after, accepted.size());
        at = draft.child(at, id);
        // Nothing comes after the end.
        if (at == Draft::root || is_end_token(request, id)) return accepted;
        accepted.push_back(at);
    }
}

/// All samples go on from the one prompt that was computed.
void Decoder::begin_samples(Request& request) {
    request.branched = true;
    Branch& first = *request.branches.front();
    const std::size_t others = request.spec.sample_count - 1;
    if (others == 0) return;
    std::vector<rkv::Sequence> children = scheduler_.fork(first, others);
    metrics_.forks += children.size();
    for (std::size_t i = 0; i < others; ++i) {
        std::unique_ptr<Branch> sample = first.copy();
        sample->number = i + 1;
        if (i < children.size()) sample->adopt(std::move(children[i]), first);
        request.branches.push_back(std::move(sample));
    }
}

/// Draws the next token of a sample and tells the listener.
void Decoder::draw(Request& request, Branch& branch, const float* logits, Clock::time_point now) {
    const RequestSpec& spec = request.spec;
    const std::uint32_t id = next_token(request, branch, logits, 0);
    branch.tokens.push_back(id);
    observe(request, branch, now);
    ++metrics_.generated_tokens;
    TokenLogprobs logprobs;
    if (spec.logprobs || request.ranks()) {
        logprobs.logprob = logprob(logits, model_.vocab_size, id);
        branch.logprob += logprobs.logprob;
    }
    if (spec.logprobs) logprobs.top = top_logprobs(logits, model_.vocab_size, *spec.logprobs);
    const bool ended = is_end_token(request, id);
    const std::string text = ended ? std::string() : branch.text.push(tokenizer_.decode(id));
    request.listener->on_token({branch.number, id, text, spec.logprobs ? &logprobs : nullptr,
                                logits, model_.vocab_size, request.cached_tokens});
    if (ended || branch.text.stopped())
        finish_branch(request, branch, Finish::stop);
    else if (request.generated(branch) == spec.max_tokens)
        finish_branch(request, branch, Finish::length);
}

void Decoder::note_candidates(const Request& request, Branch& branch, const float* logits) const {
    const RequestSpec& spec = request.spec;
    branch.candidates = candidates_of(
        logits, model_.vocab_size, spec.beam_width,
        [&](std::uint32_t id) { return ends_with(request, branch, id); });
    branch.top = top_logprobs(logits, model_.vocab_size, spec.logprobs.value_or(0));
}

bool Decoder::is_end_token(const Request& request, std::uint32_t id) const {
    const std::vector<std::uint32_t>& ends = model_.eos_token_ids;
    return !request.spec.ignore_eos && std::find(ends.begin(), ends.end(), id) != ends.end();
}

bool Decoder::ends_with(const Request& request, const Branch& branch, std::uint32_t id) const {
    if (is_end_token(request, id)) return true;
    return !request.spec.stop.empty() && branch.text.stops_with(tokenizer_.decode(id));
}

/// One step of a beam search, when the candidates of all beams are known.
void Decoder::search(Request& request, Clock::time_point now) {
    const RequestSpec& spec = request.spec;
    request.branched = true;
    Succession succession(request, scheduler_);
    std::vector<Beam> beams;
    for (const Branch* beam : succession.beams())
        beams.push_back({beam->logprob, beam->candidates});
    const auto ends = [&](std::size_t beam, std::size_t candidate) {
        const Branch& branch = *succession.beams()[beam];
        return ends_with(request, branch, branch.candidates[candidate].id);
    };
    const BeamStep step = extend_beams(beams, spec.beam_width, ends);
    const bool last = request.generated(*succession.beams().front()) + 1 == spec.max_tokens;
    const bool live_keeps_pages = !last || spec.retain;
    succession.fork(step, live_keeps_pages, spec.retain, metrics_);

    std::vector<std::unique_ptr<Branch>> next;
    const auto add = [&](const Extension& extension, bool ended) {
        std::unique_ptr<Branch> branch = succession.extend(extension);
        BeamToken& token = branch->beam_tokens.back();
        if (!is_end_token(request, token.id))
            token.text = branch->text.push(tokenizer_.decode(token.id));
        if (ended ? spec.retain : live_keeps_pages) succession.hand_over(extension, *branch);
        if (ended || last)
            finish_branch(request, *branch, ended ? Finish::stop : Finish::length);
        next.push_back(std::move(branch));
    };
    for (const Extension& extension : step.live) add(extension, false);
    for (const Extension& extension : step.ended) add(extension, true);
    for (auto& branch : request.branches)
        if (!is_live(branch)) next.push_back(std::move(branch));
    request.branches = std::move(next);
    keep_best_finished(request);
    metrics_.generated_tokens += step.live.size() + step.ended.size();
    observe(request, *request.branches.front(), now);
    for (const auto& branch : request.branches) branch->latest = now;
    if (!is_decided(request)) return;
    request.branches.erase(
        std::remove_if(request.branches.begin(), request.branches.end(), is_live),
        request.branches.end());
}

/// Counts the time since the token before.
void Decoder::observe(Request& request, Branch& branch, Clock::time_point now) {
    if (!request.first_token) {
        request.first_token = now;
        metrics_.time_to_first_token.observe(seconds_between(request.submitted, now));
        metrics_.answered_tokens += request.spec.prompt.size();
        metrics_.found_tokens += request.cached_tokens;
    } else if (request.generated(branch) > 1) {
        metrics_.inter_token_latency.observe(seconds_between(branch.latest, now));
    }
    branch.latest = now;
}

void Decoder::tell(const Request& request, const Branch& branch, std::size_t sequence) {
    for (const BeamToken& token : branch.beam_tokens)
        request.listener->on_token({sequence, token.id, token.text,
                                    request.spec.logprobs ? &token.logprobs : nullptr, nullptr,
                                    0, request.cached_tokens});
}

}  // namespace engine
