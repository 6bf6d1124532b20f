#include "http/limited_server.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

namespace engine {

namespace {

/// What is kept for the answer that this thread is at work on.
thread_local std::shared_ptr<const void> kept;

struct UntilWritten {
    ~UntilWritten() { kept.reset(); }
};

}  // namespace

/// Lets the thread that accepts a connection hand it over by itself.
class LimitedServer::InPlace final : public httplib::TaskQueue {
    // Later versions of the library want to know whether there was room.
    using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));

public:
    explicit InPlace(Connections& connections) : connections_(connections) {}

    Enqueued enqueue(std::function<void()> hand_over) override {
        hand_over();
        return Enqueued(true);
    }
    void shutdown() override { connections_.close(); }

private:
    Connections& connections_;
};

LimitedServer::LimitedServer(const ConnectionLimits& limits,
                             std::function<void(const httplib::Request&)> check_head)
    : limits_(limits), check_head_(std::move(check_head)), connections_(limits.count) {
    new_task_queue = [this] { return new InPlace(connections_); };
    // Without an end, a client that always has another request would keep its place for ever.
    set_keep_alive_max_count(100);
    set_keep_alive_timeout(std::chrono::duration_cast<std::chrono::seconds>(limits.idle).count());
}

void LimitedServer::keep(std::shared_ptr<const void> what) { kept = std::move(what); }

bool LimitedServer::process_and_close_socket(socket_t socket) {
    connections_.start(socket, [this, socket] {
        try {
            Connection connection(socket, limits_, connections_);
            std::size_t left = keep_alive_max_count_;
            while (connection.begin_head() && answer_one(connection, --left == 0)) {
            }
        } catch (const std::exception&) {  // such as no memory for this one: the others go on
        }
    });
    return true;
}

/// False when the connection is of no use any more.
bool LimitedServer::answer_one(Connection& connection, bool is_last) {
    const bool close = is_last || !is_running();
    bool client_closes = false, has_end = false;
    const std::function<void(httplib::Request&)> head_is_read = [&](httplib::Request& request) {
        check_head_(request);
        // A request may name thousands, and the library would send all of them.
        request.headers.erase("Range");
        request.ranges.clear();
        // Where chunks end, their sender and the library may not agree; and in HTTP/1.0 an answer
        // may have no other end than the connection's. The client is told so.
        has_end = !request.has_header("Transfer-Encoding") && request.version != "HTTP/1.0";
        if (!has_end) {
            request.headers.erase("Connection");
            request.headers.emplace("Connection", "close");
        }
        connection.begin_body();
    };
    // Later versions of the library want the addresses from their caller.
    const auto process = [&](auto& server) {
        using Process = decltype(&std::decay_t<decltype(server)>::process_request);
        if constexpr (std::is_invocable_v<Process, LimitedServer&, Connection&, bool, bool&,
                                          decltype(head_is_read)>)
            return server.process_request(connection, close, client_closes, head_is_read);
        else
            return server.process_request(connection, "", 0, "", 0, close, client_closes,
                                          head_is_read);
    };
    try {
        const bool is_written = [&] {
            const UntilWritten keeps;
            return process(*this);
        }();
        if (!is_written) return false;
        if (has_end) return !close && !client_closes;
        // Some heads the library answers without a look at the body: nobody knows where another
        // request would begin.
        connection.hang_up();
    } catch (const ApiError& error) {
        connection.refuse(error);
    }
    return false;
}

}  // namespace engine
