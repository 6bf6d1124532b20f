#include "serve/retained.hpp"

#include <algorithm>
#include <utility>

namespace engine {

std::optional<Parent> Retained::find(const std::string& id) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = parents_.find(id);
    if (found != parents_.end()) return found->second;
    if (running_.count(id.substr(0, id.find('.'))) > 0)
        throw ParentRunning("continuation_of: " + id + " has not ended yet");
    return std::nullopt;
}

std::optional<Parent> Retained::parent_of(const Continuation& continuation) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = parents_.find(continuation.parent);
    if (found == parents_.end() || found->second.tokens != continuation.tokens)
        return std::nullopt;
    return found->second;
}

void Retained::expect(const std::string& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_.insert(request);
}

void Retained::settle(const std::string& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_.erase(request);
}

bool Retained::put(const std::string& id, rkv::Sequence& sequence, Parent parent) {
    (void)drop(id);
    const std::lock_guard<std::mutex> lock(mutex_);
    parent.sequence = sequence.get();
    // What needs memory comes first: the library retains nothing that nobody has an id for.
    order_.push_back(id);
    bool is_kept = false;
    try {
        parents_.emplace(id, std::move(parent));
        is_kept = sequence.retain();
    } catch (...) {
        forget(id);
        throw;
    }
    if (is_kept)
        forget_displaced();
    else
        forget(id);
    return is_kept;
}

bool Retained::drop(const std::string& id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = parents_.find(id);
    if (found == parents_.end()) return false;
    const rkv_sequence_id sequence = found->second.sequence;
    // The id goes, whatever the library says.
    forget(id);
    cache_.drop(sequence);
    return true;
}

bool Retained::make_room(std::uint32_t pool, std::size_t page_count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (order_.empty()) return false;
    (void)cache_.drop_retained_pool(pool, std::max<std::size_t>(page_count, 1));
    forget_displaced();
    return true;
}

void Retained::forget(const std::string& id) {
    parents_.erase(id);
    order_.erase(std::remove(order_.begin(), order_.end(), id), order_.end());
}

/// Whoever gave way stood at the front.
void Retained::forget_displaced() {
    const std::uint64_t left = cache_.stats().retained_sequence_count;
    while (order_.size() > left) {
        parents_.erase(order_.front());
        order_.pop_front();
    }
}

}  // namespace engine
