// The page and its events: GET / and GET /cache/events.
#ifndef ENGINE_HTTP_PAGE_ROUTES_HPP
#define ENGINE_HTTP_PAGE_ROUTES_HPP

#include "serve/engine.hpp"

#include <httplib.h>

#include <atomic>
#include <cstddef>

namespace engine {

/// The page shows the text of everybody's prompts. So it is there only when it was asked for, on an
/// address of this machine alone, and for requests that name such an address: a site that lets its
/// own name point here gets nothing.
class PageRoutes {
public:
    /// Event streams at once. Each is a connection for as long as a page is open.
    static constexpr std::size_t most_streams = 8;

    /// All outlive it. Streams end once `ends` is true. When the page is off, it says how to have
    /// it.
    PageRoutes(bool on, const Engine& engine, const std::atomic<bool>& ends)
        : on_(on), engine_(engine), ends_(ends) {}
    void add_to(httplib::Server& server);
    /// Whether no stream is open.
    [[nodiscard]] bool idle() const { return streams_ == 0; }

private:
    const bool on_;
    const Engine& engine_;
    const std::atomic<bool>& ends_;
    std::atomic<std::size_t> streams_{0};

    void check(const httplib::Request& request) const;
    void page(httplib::Response& response) const;
    void events(bool takes_chunks, httplib::Response& response);
};

}  // namespace engine

#endif  // ENGINE_HTTP_PAGE_ROUTES_HPP
