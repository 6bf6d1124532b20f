#include "serve/net_library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace engine {

NetLibrary::NetLibrary(std::string option) : option_(std::move(option)) {
    const char* path = std::getenv("RADIXKV_NET_LIBRARY");
    library_ = dlopen(path != nullptr ? path : "libradixkv_net.so", RTLD_NOW);
    if (library_ == nullptr) throw std::runtime_error(option_ + ": " + dlerror() + " (make net)");
    find("rkv_net_last_error_message", last_error_message_);
}

void* NetLibrary::symbol(const char* name) const {
    void* found = dlsym(library_, name);
    if (found == nullptr) throw std::runtime_error(option_ + ": " + dlerror());
    return found;
}

void NetLibrary::check(rkv_net_status status) const {
    if (status == RKV_NET_STATUS_OK) return;
    char message[512];
    last_error_message_(message, sizeof message);
    throw std::runtime_error(option_ + ": " + message);
}

}  // namespace engine
