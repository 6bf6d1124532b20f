#include "http/page_routes.hpp"

#include "http/active.hpp"
#include "http/api_error.hpp"
#include "http/loopback.hpp"
#include "http/random_hex.hpp"
#include "page/cache_events.hpp"
#include "page/page.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace engine {

namespace {

using namespace std::chrono_literals;

// How often the journal is looked at when nothing new is in it.
constexpr auto pause = 50ms;

/// One page's events. The journal waits for nobody: a page that takes nothing is behind, and one
/// that is too far behind begins again.
class EventStream {
public:
    EventStream(const Core& core, const std::atomic<bool>& ends) : events_(core), ends_(ends) {}

    /// Writes what is new, or waits a little for it. False when the page is gone.
    bool write_some(httplib::DataSink& sink) {
        if (ends_) {
            sink.done();
            return true;
        }
        const std::string text = events_.next();
        if (!text.empty()) return sink.write(text.data(), text.size());
        std::this_thread::sleep_for(pause);
        return sink.is_writable();
    }

private:
    CacheEvents events_;
    const std::atomic<bool>& ends_;
};

}  // namespace

void PageRoutes::add_to(httplib::Server& server) {
    server.Get("/", [this](const httplib::Request& request, httplib::Response& response) {
        check(request);
        page(response);
    });
    server.Get("/cache/events", [this](const httplib::Request& request,
                                       httplib::Response& response) {
        check(request);
        events(request.version != "HTTP/1.0", response);
    });
}

void PageRoutes::check(const httplib::Request& request) const {
    if (!on_) throw ApiError(404, "the page is off; --page switches it on");
    if (!names_loopback(request.get_header_value("Host")))
        throw ApiError(403, "Host: the page is only for this machine: ask for it as localhost");
}

void PageRoutes::page(httplib::Response& response) const {
    const std::string nonce = random_hex();
    response.set_header("Content-Security-Policy",
                        "default-src 'none'; script-src 'nonce-" + nonce +
                            "'; style-src 'nonce-" + nonce +
                            "'; connect-src 'self'; img-src data:; base-uri 'none'; "
                            "form-action 'none'; frame-ancestors 'none'");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("Referrer-Policy", "no-referrer");
    response.set_header("Cross-Origin-Resource-Policy", "same-origin");
    response.set_header("Cache-Control", "no-store");
    response.set_content(page_html(nonce), "text/html; charset=utf-8");
}

void PageRoutes::events(bool takes_chunks, httplib::Response& response) {
    const auto active = std::make_shared<Active>(streams_, most_streams, "pages are open");
    const auto stream = std::make_shared<EventStream>(engine_.core(), ends_);
    response.set_header("Cross-Origin-Resource-Policy", "same-origin");
    response.set_header("Cache-Control", "no-store");
    const auto provide = [active, stream](std::size_t, httplib::DataSink& sink) {
        return stream->write_some(sink);
    };
    // HTTP/1.0 has no chunks: there the connection ends with the events.
    if (takes_chunks)
        response.set_chunked_content_provider("text/event-stream", provide);
    else
        response.set_content_provider("text/event-stream", provide);
}

}  // namespace engine
