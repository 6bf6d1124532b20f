#include "serve/scheduler.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace engine {

namespace {

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

template <class Queue> auto place_of(Queue& queue, std::uint64_t number) {
    return std::lower_bound(
        queue.begin(), queue.end(), number,
        [](const std::unique_ptr<Request>& request, std::uint64_t n) {
            return request->number < n;
        });
}

template <class Queue> std::unique_ptr<Request> take(Queue& queue, std::uint64_t number) {
    const auto place = place_of(queue, number);
    if (place == queue.end() || (*place)->number != number) return nullptr;
    std::unique_ptr<Request> request = std::move(*place);
    queue.erase(place);
    return request;
}

template <class Queue> void put(Queue& queue, std::unique_ptr<Request> request) {
    const auto place = place_of(queue, request->number);
    queue.insert(place, std::move(request));
}

}  // namespace

Request::Request(std::uint64_t arrival, RequestSpec what, std::shared_ptr<Listener> who)
    : number(arrival),
      spec(std::move(what)),
      listener(std::move(who)),
      name_space(namespace_of(spec.cache_salt)),
      tokens(spec.prompt),
      text(spec.stop) {}

void Scheduler::add(std::unique_ptr<Request> request) { put(waiting_, std::move(request)); }

std::unique_ptr<Request> Scheduler::remove(std::uint64_t number) {
    std::unique_ptr<Request> request = take(running_, number);
    if (request == nullptr) return take(waiting_, number);
    request->sequence.reset();
    return request;
}

std::vector<std::uint64_t> Scheduler::numbers() const {
    std::vector<std::uint64_t> numbers;
    for (const auto& request : running_) numbers.push_back(request->number);
    for (const auto& request : waiting_) numbers.push_back(request->number);
    return numbers;
}

const std::vector<StepRow>& Scheduler::plan() {
    rows_.clear();
    std::size_t budget = config_.chunk_size > 0 ? config_.chunk_size
                                                : std::numeric_limits<std::size_t>::max();
    bool preempted = false;
    plan_running(budget, preempted);
    // What was just taken from one request is for those that run, not for another to begin with.
    if (!preempted) admit(budget);
    return rows_;
}

void Scheduler::plan_running(std::size_t& budget, bool& preempted) {
    // Whoever gives way stands behind the request at hand, or is it: rows_ stays good.
    for (std::size_t i = 0; i < running_.size(); ++i) {
        Request& request = *running_[i];
        blamed_ = request.number;
        while (i < running_.size() && !extend(request)) {
            preempt_last();
            preempted = true;
        }
        if (i < running_.size()) take_row(request, budget);
    }
}

/// A request begins only in a step that computes some of it: so it finds in the cache what others
/// have published up to then.
void Scheduler::admit(std::size_t& budget) {
    while (budget > 0 && !waiting_.empty() && running_.size() < config_.max_running) {
        Request& request = *waiting_.front();
        blamed_ = request.number;
        if (!may_fit(request) || !begin(request)) return;
        running_.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
        take_row(request, budget);
    }
}

void Scheduler::take_row(Request& request, std::size_t& budget) {
    std::size_t count = request.to_compute();
    if (count > 1) {
        count = std::min(count, budget);
        budget -= count;
    }
    if (count > 0) rows_.push_back({&request, request.computed, count});
}

/// Tells the sequence the token that was generated. False when there is no page for it.
bool Scheduler::extend(Request& request) {
    if (request.sequence_tokens == request.tokens.size()) return true;
    const rkv::span<const std::uint32_t> added(request.tokens.data() + request.sequence_tokens,
                                               request.tokens.size() - request.sequence_tokens);
    try {
        request.sequence.append(added);
    } catch (const rkv::OutOfPages&) {
        return false;
    }
    request.sequence_tokens = request.tokens.size();
    return true;
}

/// Whether it is worth trying to begin. Each running request is left a page to grow by; what is
/// cached of the prompt needs no new page.
bool Scheduler::may_fit(const Request& request) const {
    if (running_.empty()) return true;
    const std::size_t headroom = running_.size() * kv_.cache().page_size();
    if (kv_.table().can_reserve_new(request.tokens.size() + headroom)) return true;
    const rkv::Probe probe = kv_.cache().probe(request.tokens, request.name_space);
    const rkv_page_table_statistics pages = kv_.table().stats();
    const std::uint64_t shared = probe.position_count / kv_.cache().page_size();
    return kv_.pages_for(request.tokens.size()) - shared + running_.size() <=
           pages.free_page_count + pages.reclaimable_page_count;
}

bool Scheduler::begin(Request& request) {
    auto state = rkv::sized<rkv_sequence_state>();
    try {
        request.sequence = kv_.cache().begin(request.tokens, request.name_space, 0, &state);
    } catch (const rkv::OutOfPages&) {
        // With nothing else running the pool holds any request that was accepted.
        if (running_.empty()) throw;
        return false;
    }
    request.sequence_tokens = request.tokens.size();
    request.computed = static_cast<std::size_t>(state.cached_token_count);
    request.published_pages = request.computed / kv_.cache().page_size();
    if (request.began) return true;
    request.began = true;
    request.cached_tokens = request.computed;
    metrics_.prompt_tokens += request.spec.prompt.size();
    metrics_.cached_tokens += request.cached_tokens;
    ++(request.cached_tokens > 0 ? metrics_.cache_hits : metrics_.cache_misses);
    return true;
}

/// The request that came last gives its memory back and waits, with all that it has generated; what
/// it published may still be there when its turn comes again.
void Scheduler::preempt_last() {
    std::unique_ptr<Request> request = std::move(running_.back());
    running_.pop_back();
    request->sequence.reset();
    request->sequence_tokens = 0;
    request->computed = 0;
    ++request->preemptions;
    ++metrics_.preemptions;
    put(waiting_, std::move(request));
}

}  // namespace engine
