#include "page/node_states.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace engine {

namespace {

/// The roots of all namespaces.
std::vector<rkv_node_id> roots_of(const rkv::Cache& cache) {
    std::vector<rkv_namespace> spaces;
    std::vector<rkv_node_id> roots;
    for (;;) {
        std::size_t count = 0;
        const rkv_status status =
            rkv_cache_read_namespaces(cache.get(), spaces.data(), sizeof(rkv_namespace),
                                      roots.data(), roots.size(), &count);
        if (status != RKV_STATUS_BUFFER_TOO_SMALL) rkv::check(status);
        const bool fits = count <= roots.size();
        spaces.resize(count);
        roots.resize(count);
        if (fits) return roots;
    }
}

}  // namespace

NodeStates::States NodeStates::read(const rkv::Cache& cache) {
    States states;
    std::vector<rkv_node_id> nodes = roots_of(cache);
    while (!nodes.empty()) {
        const rkv_node_id node = nodes.back();
        nodes.pop_back();
        try {
            const rkv_node_info info = cache.node_info(node);
            const std::vector<std::uint32_t> pages = cache.node_pages(node);
            if (!pages.empty())
                states[pages.back()] = {pages.size(), info.lock_count, info.last_access,
                                        info.hit_count};
            if (info.child_count == 0) continue;
            const std::vector<rkv_node_id> children = cache.node_children(node);
            nodes.insert(nodes.end(), children.begin(), children.end());
        } catch (const rkv::Error& error) {
            // It went, or became another one, while we looked elsewhere.
            if (error.status() != RKV_STATUS_STALE_NODE) throw;
        }
    }
    return states;
}

NodeStates::Json NodeStates::changes(const rkv::Cache& cache) {
    States states = read(cache);
    Json nodes = Json::array(), gone = Json::array();
    for (const auto& [page, state] : states) {
        const auto before = told_.find(page);
        if (before != told_.end() && before->second == state) continue;
        nodes.push_back({page, state.page_count, state.lock_count, state.last_access,
                         state.hit_count});
    }
    for (const auto& [page, state] : told_)
        if (states.count(page) == 0) gone.push_back(page);
    told_ = std::move(states);
    if (nodes.empty() && gone.empty()) return nullptr;
    return {{"nodes", nodes}, {"gone", gone}};
}

}  // namespace engine
