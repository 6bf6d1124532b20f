// B11: SmolLM2-135M-Instruct, as `make model` makes it, against what others made of it:
//
//     test_smollm2 FOLDER tests/engine/smollm2.json
#include "fixture.hpp"

#include <nlohmann/json.hpp>

#include <fstream>

using namespace test;
using Json = nlohmann::json;
using Ids = std::vector<std::uint32_t>;

namespace {

std::filesystem::path folder;
Json recorded;

}  // namespace

static void b11_tokens_are_those_of_llama_cpp() {
    const auto config = engine::read_model_config(folder / "config.json");
    const auto tokenizer = engine::load_tokenizer(folder, config);
    CHECK(recorded["texts"].size() >= 12);
    for (const Json& entry : recorded["texts"]) {
        const auto text = entry["text"].get<std::string>();
        const Ids ids = tokenizer->encode(text);
        if (ids != entry["tokens"].get<Ids>()) fail(__FILE__, __LINE__, "tokens of " + text);
        CHECK(ids == tokenizer->encode_whole(text));
        std::string bytes, without_special = text;
        for (const std::uint32_t id : ids) bytes += tokenizer->decode(id);
        for (const char* special : {"<|im_start|>", "<|im_end|>"}) {
            const std::size_t at = without_special.find(special);
            if (at != std::string::npos) without_special.erase(at, std::string(special).size());
        }
        // The vocabulary lacks some control characters.
        if (text.find('\0') == std::string::npos) CHECK_EQ(bytes, without_special);
    }
    CHECK_EQ(tokenizer->decode(49152), "");
    CHECK_EQ(tokenizer->decode(UINT32_MAX), "");
}

/// The template, the tokenizer, the weights and the layers, all at once. In f32 like the reference:
/// sums in another order have come out the same.
static void b11_greedy_tokens_are_those_of_transformers() {
    engine::EngineConfig config;
    config.model = folder;
    config.kv.page_count = 512;
    TestCore core(config);
    CHECK_EQ(recorded["chats"].size(), 10U);
    std::vector<std::shared_ptr<Heard>> heard;
    const engine::Tokenizer& tokenizer = core.core().tokenizer();
    for (const Json& chat : recorded["chats"]) {
        const Json messages = {{{"role", "user"}, {"content", chat["content"]}}};
        const Ids prompt = tokenizer.encode(tokenizer.chat(messages.dump()));
        CHECK(prompt == chat["prompt"].get<Ids>());
        heard.push_back(core.add(greedy(prompt, 32)));
    }
    core.run();
    for (std::size_t i = 0; i < heard.size(); ++i)
        if (heard[i]->tokens != recorded["chats"][i]["tokens"].get<Ids>())
            fail(__FILE__, __LINE__, recorded["chats"][i]["content"].get<std::string>());
}

int main(int count, char** arguments) {
    if (count != 3) fail("main", 0, "usage: test_smollm2 FOLDER JSON");
    folder = arguments[1];
    std::ifstream file(arguments[2]);
    recorded = Json::parse(file);
    RUN(b11_tokens_are_those_of_llama_cpp);
    RUN(b11_greedy_tokens_are_those_of_transformers);
    return 0;
}
