#include "serve/tokenizer.hpp"

#include "model/json.hpp"
#include "serve/text.hpp"
#include "text/engine_text.h"

#include <optional>

namespace engine {

namespace {

/// For models without a tokenizer: those with random weights.
class ByteTokenizer final : public Tokenizer {
public:
    explicit ByteTokenizer(const ModelConfig& model) : begin_(model.bos_token_id) {}

    std::vector<std::uint32_t> encode_whole(std::string_view text) const override {
        std::vector<std::uint32_t> ids = engine::encode(text);
        if (begin_) ids.insert(ids.begin(), *begin_);
        return ids;
    }
    std::vector<std::uint32_t> encode(std::string_view text) const override {
        return engine::encode(text);
    }
    std::string_view decode(std::uint32_t id) const override { return engine::decode(id); }
    std::string_view special(std::uint32_t) const override { return {}; }
    /// A line for each message.
    std::string chat(const std::string& messages) const override {
        std::string text;
        for (const nlohmann::json& message : parse_json(messages))
            text += message.at("role").get<std::string>() + ": " +
                    message.at("content").get<std::string>() + "\n";
        return text + "assistant: ";
    }

private:
    std::optional<std::uint32_t> begin_;
};

/// That of tokenizer.json, by the library in text/.
class FileTokenizer final : public Tokenizer {
public:
    explicit FileTokenizer(const std::filesystem::path& folder) {
        std::string error;
        text_.reset(engine_text_open(folder.c_str(), append_bytes, &error));
        if (!text_) throw std::runtime_error(error);
    }
    std::vector<std::uint32_t> encode_whole(std::string_view text) const override {
        return ids_of(text, true);
    }
    std::vector<std::uint32_t> encode(std::string_view text) const override {
        return ids_of(text, false);
    }
    std::string_view decode(std::uint32_t id) const override {
        std::size_t count = 0;
        const char* bytes = engine_text_token(text_.get(), id, &count);
        return {bytes, count};
    }
    std::string_view special(std::uint32_t id) const override {
        std::size_t count = 0;
        const char* name = engine_text_special(text_.get(), id, &count);
        return {name, count};
    }
    std::string chat(const std::string& messages) const override {
        std::string result;
        if (!engine_text_chat(text_.get(), messages.data(), messages.size(), append_bytes, &result))
            throw ChatError(result);
        return result;
    }

private:
    struct Close {
        void operator()(engine_text* text) const noexcept { engine_text_close(text); }
    };
    std::unique_ptr<engine_text, Close> text_;

    static void append_bytes(void* to, const char* bytes, std::size_t count) {
        static_cast<std::string*>(to)->append(bytes, count);
    }
    static void append_ids(void* to, const std::uint32_t* ids, std::size_t count) {
        auto& list = *static_cast<std::vector<std::uint32_t>*>(to);
        list.insert(list.end(), ids, ids + count);
    }
    [[nodiscard]] std::vector<std::uint32_t> ids_of(std::string_view text, bool whole) const {
        std::vector<std::uint32_t> ids;
        engine_text_encode(text_.get(), text.data(), text.size(), whole, append_ids, &ids);
        return ids;
    }
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                          const ModelConfig& model) {
    if (std::filesystem::exists(folder / "tokenizer.json"))
        return std::make_unique<FileTokenizer>(folder);
    return std::make_unique<ByteTokenizer>(model);
}

}  // namespace engine
