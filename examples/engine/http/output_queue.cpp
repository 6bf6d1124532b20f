#include "http/output_queue.hpp"

#include <type_traits>
#include <utility>

namespace engine {

void OutputQueue::on_token(const TokenOutput& token) {
    OutputToken output{token.sequence, token.id, token.text, {}, token.cached_tokens};
    if (token.logprobs != nullptr) output.logprobs = *token.logprobs;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        output_.tokens.push_back(std::move(output));
    }
    arrived_.notify_one();
}

void OutputQueue::on_finish(RequestResult&& result) noexcept {
    static_assert(std::is_nothrow_move_constructible_v<RequestResult>);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        output_.result = std::move(result);
    }
    arrived_.notify_one();
}

OutputQueue::Output OutputQueue::wait(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait_for(lock, time, [&] { return !output_.empty(); });
    return std::exchange(output_, {});
}

bool OutputQueue::wait_finished(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    return arrived_.wait_for(lock, time, [&] { return output_.result.has_value(); });
}

}  // namespace engine
