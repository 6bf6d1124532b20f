// B11: tokenizer.json and chat templates, good ones and bad ones.
#include "http/answer_format.hpp"
#include "small_tokenizer.hpp"

#include <ctime>

using namespace test;
using Ids = std::vector<std::uint32_t>;

static std::string decoded(const engine::Tokenizer& tokenizer, const Ids& ids) {
    std::string bytes;
    for (const std::uint32_t id : ids) bytes += tokenizer.decode(id);
    return bytes;
}

static void b11_text_to_tokens_and_back() {
    const ChatCheckpoint folder;
    const auto tokenizer = folder.tokenizer();
    CHECK(tokenizer->encode("the the") == Ids({the_id, space_the_id}));
    CHECK(tokenizer->encode("<turn>the<end>") == Ids({turn_id, the_id, end_id}));
    CHECK(tokenizer->encode("").empty());
    std::string everything;
    for (int byte = 1; byte < 128; ++byte) everything += static_cast<char>(byte);
    for (const std::string& text :
         {everything, std::string("\xE2\x82\xAC 5 \xF0\x9F\x98\x80 f\xC3\xBCr the cat\n\n")})
        CHECK_EQ(decoded(*tokenizer, tokenizer->encode(text)), text);
    // Each byte of a character is a token here.
    CHECK(tokenizer->encode("\xE2\x82\xAC") == Ids({0xE2, 0x82, 0xAC}));
    for (std::uint32_t byte = 0; byte < 256; ++byte)
        CHECK_EQ(tokenizer->decode(byte), std::string(1, static_cast<char>(byte)));
    // Special tokens are no text; others that were added are.
    CHECK_EQ(tokenizer->decode(turn_id), "");
    CHECK_EQ(tokenizer->decode(marker_id), "<marker>");
    CHECK_EQ(tokenizer->special(turn_id), "<turn>");
    for (const std::uint32_t id : {the_id, marker_id, UINT32_MAX})
        CHECK_EQ(tokenizer->special(id), "");
    for (const std::uint32_t id : {263U, 100000U, UINT32_MAX}) CHECK_EQ(tokenizer->decode(id), "");
}

/// Log probabilities are told of special tokens too: of several that are likely, each has a key.
static void b11_log_probabilities_name_special_tokens() {
    const ChatCheckpoint folder;
    const auto tokenizer = folder.tokenizer();
    for (const auto& [id, text] :
         {std::pair(turn_id, "<turn>"), {end_id, "<end>"}, {marker_id, "<marker>"},
          {the_id, "the"}, {0xE2U, "\xEF\xBF\xBD"}, {UINT32_MAX, ""}})
        CHECK_EQ(engine::token_text(*tokenizer, id), text);
    CHECK_EQ(engine::token_bytes(*tokenizer, end_id), "<end>");
    CHECK_EQ(engine::token_bytes(*tokenizer, 0xE2), "\xE2");
    engine::CompletionRequest asked;
    asked.spec.logprobs = 2;
    const std::vector<engine::OutputToken> tokens = {
        {0, end_id, "", {-0.5, {{end_id, -0.5}, {turn_id, -1.5}}}, 0}};
    const auto of_completion = engine::completion_format(asked, *tokenizer);
    const auto completion = of_completion->choice({0, tokens, "", 0, true})["logprobs"];
    CHECK_EQ(completion["tokens"].dump(), R"(["<end>"])");
    CHECK_EQ(completion["top_logprobs"].dump(), R"([{"<end>":-0.5,"<turn>":-1.5}])");
    const auto of_chat = engine::chat_format(asked, *tokenizer);
    const auto chat = of_chat->choice({0, tokens, "", 0, true})["logprobs"]["content"][0];
    CHECK_EQ(chat["token"], "<end>");
    CHECK_EQ(chat["bytes"].dump(), "[60,101,110,100,62]");
    CHECK_EQ(chat["top_logprobs"][1]["token"], "<turn>");
}

/// As Llama 2 has them: a space is a character of its own, other bytes are written in hexadecimal.
static void b11_bytes_in_hexadecimal() {
    const ChatCheckpoint folder;
    Json tokenizer = small_tokenizer();
    tokenizer["added_tokens"] = Json::array();
    tokenizer["pre_tokenizer"] = nullptr;
    tokenizer["decoder"] = {{"type", "Sequence"},
                            {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
    tokenizer["model"] = {{"type", "BPE"},
                          {"vocab", {{"\xE2\x96\x81the", 0}, {"<0x0A>", 1}, {"<0xE2>", 2}}},
                          {"merges", Json::array()}};
    folder.write("tokenizer.json", tokenizer.dump());
    CHECK_EQ(decoded(*folder.tokenizer(), {0, 1, 2, 3}), " the\n\xE2");
}

/// What whoever trained the model had its tokenizer do is in its file, and is not for prompts.
static void b11_a_prompt_is_neither_cut_nor_filled_up() {
    const ChatCheckpoint folder;
    const Ids five = {the_id, space_the_id, space_the_id, space_the_id, space_the_id};
    const auto check = [&](const char* name, const Json& setting) {
        Json tokenizer = small_tokenizer();
        tokenizer[name] = setting;
        folder.write("tokenizer.json", tokenizer.dump());
        CHECK(folder.tokenizer()->encode("the the the the the") == five);
        CHECK(folder.tokenizer()->encode_whole("the the the the the") == five);
    };
    check("truncation", {{"direction", "Right"},
                         {"max_length", 3},
                         {"strategy", "LongestFirst"},
                         {"stride", 0}});
    check("padding", {{"strategy", {{"Fixed", 8}}},
                      {"direction", "Right"},
                      {"pad_to_multiple_of", nullptr},
                      {"pad_id", 0},
                      {"pad_type_id", 0},
                      {"pad_token", "<end>"}});
}

static void b11_chat_templates() {
    const ChatCheckpoint folder;
    const std::string messages =
        R"([{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi"}])";
    const std::string prompt = "<turn>system:Be brief.<end><turn>user:Hi<end><turn>assistant:";
    CHECK_EQ(folder.tokenizer()->chat(messages), prompt);
    CHECK_REFUSES(engine::ChatError, "not that",
                  (void)folder.tokenizer()->chat(R"([{"role": "user", "content": "refuse me"}])"));
    // A file of its own goes first; of several templates the default.
    folder.write("chat_template.jinja", "{{ messages[0]['content'] }}\n{{ eos_token }}");
    CHECK_EQ(folder.tokenizer()->chat(messages), " Be brief. \n<end>");
    folder.remove("chat_template.jinja");
    const Json named = {{{"name", "tools"}, {"template", "no"}},
                        {{"name", "default"},
                         {"template", "{% for m in messages %}{{ m.role }} {% endfor %}"}}};
    folder.write("tokenizer_config.json", Json{{"chat_template", named}}.dump());
    CHECK_EQ(folder.tokenizer()->chat(messages), "system user ");
    folder.remove("tokenizer_config.json");
    CHECK_REFUSES(engine::ChatError, "the model has no chat template",
                  (void)folder.tokenizer()->chat(messages));
    // Without a tokenizer, tokens are bytes and messages are lines.
    folder.remove("tokenizer.json");
    CHECK_EQ(folder.tokenizer()->chat(messages), "system:  Be brief. \nuser: Hi\nassistant: ");
    CHECK(folder.tokenizer()->encode("the") == Ids({'t', 'h', 'e'}));
}

/// What Hugging Face's libraries hand to templates beside the messages.
static void b11_templates_see_what_they_do_elsewhere() {
    const ChatCheckpoint folder;
    const auto told = [&](const std::string& source) {
        folder.write("chat_template.jinja", source);
        return folder.tokenizer()->chat(R"([{"role": "user", "content": "Hi"}])");
    };
    // The model has no bos_token. Nobody has tools.
    CHECK_EQ(told("{{ bos_token }}{{ 'defined' if bos_token is defined }}{{ eos_token }}"),
             "<end>");
    CHECK_EQ(told("{{ 'none' if tools is none and documents is none }}"), "none");
    const auto now = [] {
        const std::time_t seconds = std::time(nullptr);
        std::array<char, 64> text{};
        return std::string(text.data(), std::strftime(text.data(), text.size(), "%d %B %Y, %a %%",
                                                      std::localtime(&seconds)));
    };
    const std::string before = now();
    const std::string date = told("{{ strftime_now('%d %B %Y, %a %%') }}");
    // Midnight may have come between.
    CHECK(date == before || date == now());
    CHECK_EQ(told("{{ strftime_now('') }}."), ".");
    CHECK_REFUSES(engine::ChatError, "strftime_now: the date would be empty, or too long",
                  (void)told("{{ strftime_now('" + std::string(2000, 'x') + "') }}"));
    CHECK_REFUSES(engine::ChatError, "strftime_now: nul byte",
                  (void)told("{{ strftime_now(messages[0].content ~ '\\u0000') }}"));
}

static void b11_files_that_are_wrong() {
    const ChatCheckpoint folder;
    const auto refused = [&](const char* reason) {
        CHECK_REFUSES(std::runtime_error, reason, (void)folder.tokenizer());
    };
    folder.write("tokenizer_config.json", "{");
    refused("tokenizer_config.json: ");
    folder.write("tokenizer_config.json", R"({"chat_template": "{% for %}"})");
    refused("the chat template: ");
    folder.remove("tokenizer_config.json");
    Json tokenizer = small_tokenizer();
    tokenizer["decoder"] = nullptr;
    folder.write("tokenizer.json", tokenizer.dump());
    refused("tokenizer.json: its decoder is neither ByteLevel nor ByteFallback");
    // Ids that no model has are refused before there is a place for each.
    tokenizer = small_tokenizer();
    tokenizer["model"]["vocab"]["far"] = 4294967295U;
    folder.write("tokenizer.json", tokenizer.dump());
    refused("tokenizer.json: it has the id 4294967295");
    folder.write("tokenizer.json", "{}");
    refused("tokenizer.json: ");
}

int main() {
    RUN(b11_text_to_tokens_and_back);
    RUN(b11_log_probabilities_name_special_tokens);
    RUN(b11_bytes_in_hexadecimal);
    RUN(b11_a_prompt_is_neither_cut_nor_filled_up);
    RUN(b11_chat_templates);
    RUN(b11_templates_see_what_they_do_elsewhere);
    RUN(b11_files_that_are_wrong);
    return 0;
}
