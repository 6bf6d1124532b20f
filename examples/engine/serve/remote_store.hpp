// Pages on a server, which engines share: a store of the network library.
#ifndef ENGINE_SERVE_REMOTE_STORE_HPP
#define ENGINE_SERVE_REMOTE_STORE_HPP

#include "serve/net_library.hpp"

#include <radixkv.hpp>

#include <string>

namespace engine {

class RemoteStore {
public:
    /// redis://HOST:PORT or s3://BUCKET/FOLDER; `endpoint` is where S3 is, if not at Amazon. Nobody
    /// has to listen there. Throws std::runtime_error, which names the option.
    RemoteStore(const std::string& option, const std::string& url, const std::string& endpoint);
    ~RemoteStore();
    RemoteStore(const RemoteStore&) = delete;
    RemoteStore& operator=(const RemoteStore&) = delete;

    /// What a cache calls. The store outlives the cache.
    [[nodiscard]] const rkv_remote_store& functions() const noexcept { return functions_; }

private:
    NetLibrary library_;
    decltype(&rkv_net_store_destroy) destroy_ = nullptr;
    rkv_net_store* store_ = nullptr;
    rkv_remote_store functions_{};
};

}  // namespace engine

#endif  // ENGINE_SERVE_REMOTE_STORE_HPP
