#include "server.hpp"

#include <chrono>
#include <memory>
#include <utility>

namespace example {

namespace {

rkv::TokenView first(const Ids& ids, std::size_t count) {
    return {rkv::span<const std::uint32_t>(ids.data(), count), {}};
}

}  // namespace

void Census::born(const void* state) {
    ++born_count_;
    if (!alive_.insert(state).second) ++strange_count_;
}

void Census::died(const void* state) {
    ++died_count_;
    if (alive_.erase(state) == 0) ++strange_count_;
}

void Server::store(const Prompt& prompt, std::size_t count, std::uint32_t next_token) {
    if (cache_ == nullptr) return;
    auto state = std::make_unique<SequenceState>(sequence_.save(), census_);
    const std::size_t size_bytes = state->bytes().size();
    cache_->insert(first(prompt.ids, count), std::move(state), size_bytes, next_token);
}

std::uint32_t Server::prefill(const Prompt& prompt, Reply& reply) {
    rkv::TypedSnapshotPin<SequenceState> found;
    if (cache_ != nullptr) found = cache_->match(prompt.ids);
    std::size_t at = found.token_count();
    reply.restored_count = at;
    if (found) sequence_.restore(found->bytes());  // the pin keeps it meanwhile
    else sequence_.clear();
    // The state is that of the whole prompt: what comes next was predicted when it was saved. A
    // cache without this token would have to read the last one of the prompt again, and a recurrent
    // state cannot be taken back by that one.
    if (found.full_hit()) return found.next_token().value();
    // A batch ends at every cut, with or without a snapshot there: how the matrix products add up
    // depends on the batch, and so the same numbers come out either way, to the last bit.
    for (const std::size_t cut : prompt.cuts) {
        if (cut <= at) continue;
        sequence_.read(&prompt.ids[at], cut - at);
        at = cut;
        // Other chats begin like this one. The turns before this one, only this chat begins with.
        if (cut == prompt.cuts.front()) store(prompt, cut, sequence_.predict());
    }
    return sequence_.predict();
}

Reply Server::complete(const Prompt& prompt, std::size_t most) {
    using Clock = std::chrono::steady_clock;
    Reply reply;
    reply.prompt_count = prompt.ids.size();
    const Clock::time_point start = Clock::now();
    std::uint32_t token = prefill(prompt, reply);
    reply.ttft_seconds = std::chrono::duration<double>(Clock::now() - start).count();

    const bool computed = reply.restored_count < prompt.ids.size();
    if (computed) store(prompt, prompt.ids.size(), token);
    reply.digests.push_back(computed ? sequence_.prediction_digest() : 0);
    reply.tokens.push_back(token);
    while (reply.tokens.size() < most && !model_.ends_reply(token)) {
        sequence_.read(&token, 1);
        token = sequence_.predict();
        reply.digests.push_back(sequence_.prediction_digest());
        reply.tokens.push_back(token);
    }
    return reply;
}

}  // namespace example
