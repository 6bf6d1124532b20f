// libradixkv_net.so: what of the library needs a network, for those who ask for it.
#ifndef ENGINE_SERVE_NET_LIBRARY_HPP
#define ENGINE_SERVE_NET_LIBRARY_HPP

#include <radixkv_net.h>

#include <string>

namespace engine {

/// It is loaded when it is needed, so that an engine without routers and remote stores has none:
/// from RADIXKV_NET_LIBRARY, or where the loader looks. It is never unloaded: its thread-local
/// destructors would run code that is gone.
class NetLibrary {
public:
    /// For an option, which errors name. Throws std::runtime_error.
    explicit NetLibrary(std::string option);

    /// Looks up a function of its header.
    template <class F> void find(const char* name, F& function) const {
        function = reinterpret_cast<F>(symbol(name));
    }
    /// Throws std::runtime_error with the message of a call that failed on this thread.
    void check(rkv_net_status status) const;

private:
    std::string option_;
    void* library_;
    decltype(&rkv_net_last_error_message) last_error_message_ = nullptr;

    [[nodiscard]] void* symbol(const char* name) const;
};

}  // namespace engine

#endif  // ENGINE_SERVE_NET_LIBRARY_HPP
