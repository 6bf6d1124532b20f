#include "serve/remote_store.hpp"

namespace engine {

RemoteStore::RemoteStore(const std::string& option, const std::string& url,
                         const std::string& endpoint)
    : library_(option) {
    decltype(&rkv_net_store_create) create = nullptr;
    decltype(&rkv_net_store_describe) describe = nullptr;
    library_.find("rkv_net_store_create", create);
    library_.find("rkv_net_store_describe", describe);
    library_.find("rkv_net_store_destroy", destroy_);
    rkv_net_store_config config{};
    config.struct_size = sizeof config;
    config.url = url.c_str();
    if (!endpoint.empty()) config.endpoint = endpoint.c_str();
    library_.check(create(&config, &store_));
    functions_.struct_size = sizeof functions_;
    // A store that was just made has functions.
    library_.check(describe(store_, &functions_));
}

RemoteStore::~RemoteStore() { destroy_(store_); }

}  // namespace engine
