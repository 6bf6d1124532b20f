// A tokenizer for the small models: bytes, a few longer tokens, two special ones, and a chat
// template.
#ifndef RADIXKV_TESTS_ENGINE_SMALL_TOKENIZER_HPP
#define RADIXKV_TESTS_ENGINE_SMALL_TOKENIZER_HPP

#include "fixture.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <fstream>

namespace test {

using Json = nlohmann::json;

/// How a byte is spelled in a byte-level vocabulary: as a character, in UTF-8.
inline std::string spelled(std::size_t byte) {
    const auto is_itself = [](std::size_t b) {
        return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
    };
    std::size_t code = byte;
    if (!is_itself(byte)) {
        code = 256;
        for (std::size_t before = 0; before < byte; ++before) code += is_itself(before) ? 0 : 1;
    }
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

/// Ids 0 to 255 are bytes; these follow.
constexpr std::uint32_t the_id = 258, space_the_id = 259;
constexpr std::uint32_t turn_id = 260, end_id = 261, marker_id = 262;
constexpr std::size_t small_vocabulary = 263;

inline Json added_token(std::uint32_t id, const char* content, bool special) {
    return {{"id", id},         {"content", content}, {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", false}, {"special", special}};
}

inline Json small_tokenizer() {
    Json vocabulary = Json::object();
    for (std::size_t byte = 0; byte < 256; ++byte) vocabulary[spelled(byte)] = byte;
    const std::array<std::array<std::string, 2>, 4> merges = {
        {{"t", "h"}, {spelled(' '), "t"}, {"th", "e"}, {spelled(' '), "the"}}};
    std::uint32_t id = 256;
    for (const auto& [first, second] : merges) vocabulary[first + second] = id++;
    const Json spelling = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
    return {{"version", "1.0"},
            {"added_tokens",
             {added_token(turn_id, "<turn>", true), added_token(end_id, "<end>", true),
              added_token(marker_id, "<marker>", false)}},
            {"pre_tokenizer", spelling},
            {"decoder", spelling},
            {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

/// Trims as Python does, and refuses what it doesn't know.
constexpr const char* small_template =
    "{%- for message in messages %}\n"
    "    {%- if message['content'] == 'refuse me' %}\n"
    "        {{- raise_exception('not that') }}\n"
    "    {%- endif %}\n"
    "    {{- '<turn>' + message.role + ':' + message['content'].strip() + eos_token }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<turn>assistant:' }}{% endif %}\n";

/// A folder with a small model and a tokenizer.
class ChatCheckpoint {
public:
    ChatCheckpoint() : checkpoint_(spec()) {
        write("tokenizer.json", small_tokenizer().dump());
        const Json config = {{"chat_template", small_template},
                             {"bos_token", nullptr},
                             {"eos_token", {{"content", "<end>"}}}};
        write("tokenizer_config.json", config.dump());
    }
    [[nodiscard]] const std::filesystem::path& path() const { return checkpoint_.path(); }
    void write(const char* name, const std::string& content) const {
        std::ofstream file(path() / name, std::ios::binary);
        file << content;
    }
    void remove(const char* name) const { std::filesystem::remove(path() / name); }
    [[nodiscard]] std::unique_ptr<engine::Tokenizer> tokenizer() const {
        return engine::load_tokenizer(path(), spec().model);
    }

private:
    Checkpoint checkpoint_;

    static engine::CheckpointSpec spec() {
        engine::CheckpointSpec spec = tiny_spec();
        spec.model.vocab_size = small_vocabulary;
        spec.model.bos_token_id.reset();
        spec.model.eos_token_ids = {end_id};
        return spec;
    }
};

}  // namespace test

#endif  // RADIXKV_TESTS_ENGINE_SMALL_TOKENIZER_HPP
