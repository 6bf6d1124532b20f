// B11: from logits to tokens and from tokens to text.
#include "fixture.hpp"
#include "serve/sampler.hpp"
#include "serve/text.hpp"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <map>
#include <new>

using namespace test;

/// Bytes that were allocated by now.
static std::atomic<std::size_t> allocated{0};

// Where these are inlined, g++ takes what one of them gets and another frees for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    allocated += bytes;
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

std::uint32_t draw(const std::vector<float>& logits, double temperature, double top_p,
                   std::uint64_t index, std::uint64_t seed = 5) {
    return engine::sample(logits.data(), logits.size(), {temperature, top_p, seed}, index);
}

/// Pushes a text in pieces of a few bytes.
std::string through_utf8(const std::string& bytes, std::size_t piece) {
    engine::Utf8Stream stream;
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += piece)
        out += stream.push(bytes.substr(i, piece));
    return out + stream.finish();
}

std::string through_stop(const std::string& bytes, const std::vector<std::string>& stop,
                         std::size_t piece) {
    engine::OutputText text(stop);
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += piece) out += text.push(bytes.substr(i, piece));
    return out + text.finish();
}

}  // namespace

static void b11_greedy_takes_the_likeliest_and_the_lower_of_equals() {
    CHECK_EQ(draw({1, 3, 2}, 0, 1, 0), 1U);
    CHECK_EQ(draw({1, 3, 3, 3}, 0, 1, 9), 1U);
    CHECK_EQ(draw({-5, -4}, 0, 0.1, 0), 1U);
}

static void b11_draws_follow_the_distribution() {
    const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
    constexpr std::size_t count = 60000;
    const auto shares = [&](double temperature, double top_p) {
        std::vector<double> drawn(3, 0);
        for (std::size_t i = 0; i < count; ++i)
            drawn[draw(logits, temperature, top_p, i)] += 1.0 / count;
        return drawn;
    };
    // Five standard deviations of such a share are 0.01.
    const auto near = [](double a, double b) { return std::abs(a - b) < 0.011; };
    const auto plain = shares(1, 1);
    CHECK(near(plain[0], 0.5) && near(plain[1], 0.3) && near(plain[2], 0.2));
    const auto cold = shares(0.5, 1);  // squares, by 0.38
    CHECK(near(cold[0], 0.25 / 0.38) && near(cold[2], 0.04 / 0.38));
    const auto nucleus = shares(1, 0.6);  // the second token is needed to reach 0.6
    CHECK(near(nucleus[0], 0.625) && near(nucleus[1], 0.375) && nucleus[2] == 0);
    CHECK_EQ(shares(1, 0.5)[0], shares(1, 0)[0]);
    CHECK(near(shares(1, 0.49)[0], 1));
}

static void b11_draws_are_repeatable() {
    const std::vector<float> logits(100, 0.0F);
    std::map<std::uint32_t, int> seen;
    for (std::uint64_t i = 0; i < 50; ++i) {
        CHECK_EQ(draw(logits, 1, 1, i, 7), draw(logits, 1, 1, i, 7));
        ++seen[draw(logits, 1, 1, i, 7)];
    }
    CHECK(seen.size() > 20);
    std::size_t equal = 0;
    for (std::uint64_t i = 0; i < 50; ++i)
        equal += draw(logits, 1, 1, i, 7) == draw(logits, 1, 1, i, 8) ? 1 : 0;
    CHECK(equal < 10);
}

static void b11_log_probabilities() {
    const std::vector<float> logits = {std::log(0.5F), std::log(0.125F), std::log(0.375F)};
    const auto top = engine::top_logprobs(logits.data(), logits.size(), 2);
    CHECK_EQ(top.size(), 2U);
    CHECK_EQ(top[0].first, 0U);
    CHECK_EQ(top[1].first, 2U);
    CHECK(std::abs(top[1].second - std::log(0.375)) < 1e-6);
    CHECK(std::abs(engine::logprob(logits.data(), 3, 1) - std::log(0.125)) < 1e-6);
    CHECK_EQ(engine::top_logprobs(logits.data(), 3, 20).size(), 3U);
}

static void b11_bytes_become_valid_utf8() {
    const std::string replaced = "\xEF\xBF\xBD";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"plain", "plain"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"a\xFF", "a" + replaced},
        {"\xC3", replaced},
        {"\xC3(", replaced + "("},
        {"\xE2\x82", replaced},
        {"\xE2\x82" "A", replaced + "A"},
        {"\xC0\xAF", replaced + replaced},                            // a longer form of '/'
        {"\xE0\x80\xAF", replaced + replaced + replaced},             // another
        {"\xED\xA0\x80", replaced + replaced + replaced},             // half a surrogate pair
        {"\xF4\x90\x80\x80", replaced + replaced + replaced + replaced},  // beyond Unicode
    };
    for (const auto& [bytes, expected] : cases)
        for (const std::size_t piece : {1U, 2U, 3U, 100U})
            CHECK_EQ(through_utf8(bytes, piece), expected);
}

static void b11_stop_strings_end_the_text() {
    const std::vector<std::string> stop = {"END", "\n\n", ""};
    for (const std::size_t piece : {1U, 2U, 3U, 100U}) {
        CHECK_EQ(through_stop("one two END three", stop, piece), "one two ");
        CHECK_EQ(through_stop("EEND", stop, piece), "E");
        CHECK_EQ(through_stop("ENENDD", stop, piece), "EN");
        CHECK_EQ(through_stop("a\n\nEND", stop, piece), "a");
        CHECK_EQ(through_stop("never EN", stop, piece), "never EN");
        CHECK_EQ(through_stop("", stop, piece), "");
        CHECK_EQ(through_stop("a\nb", {}, piece), "a\nb");
    }
    engine::OutputText text({"END"});
    CHECK_EQ(text.push("xE"), "x");  // held back
    CHECK_EQ(text.push("N"), "");
    CHECK_EQ(text.push("x"), "ENx");
    CHECK_EQ(text.push("END and more"), "");
    CHECK(text.stopped());
    CHECK_EQ(text.push("more"), "");
    CHECK_EQ(text.finish(), "");
}

static void b11_stop_strings_and_end_of_text_end_requests() {
    const Checkpoint checkpoint;
    TestCore core(tiny_config(checkpoint));
    engine::RequestSpec spec = greedy(random_tokens(1, 20), 30);
    const auto whole = core.complete(spec);
    CHECK(whole->result->finish == engine::Finish::length);
    CHECK_EQ(whole->text.size(), 30U);
    spec.stop = {whole->text.substr(10, 3)};
    const auto stopped = core.complete(spec);
    const std::size_t place = whole->text.find(spec.stop[0]);
    CHECK(stopped->result->finish == engine::Finish::stop);
    CHECK_EQ(stopped->text, whole->text.substr(0, place));
    CHECK_EQ(stopped->result->completion_tokens, place + 3);

    // The same model, to which a token that it generates means the end.
    engine::CheckpointSpec ending = tiny_spec();
    ending.model.eos_token_ids = {engine::eos_id, whole->tokens[7]};
    const Checkpoint other(ending);
    TestCore ends(tiny_config(other));
    spec.stop.clear();
    CHECK(ends.complete(spec)->tokens == whole->tokens);  // ignore_eos
    spec.ignore_eos = false;
    const auto ended = ends.complete(spec);
    std::size_t first = 0;
    while (whole->tokens[first] != whole->tokens[7]) ++first;
    CHECK(ended->result->finish == engine::Finish::stop);
    CHECK_EQ(ended->result->completion_tokens, first + 1);
    CHECK_EQ(ended->text, whole->text.substr(0, first));
    core.audit_idle();
}

static void b11_copies_share_their_stop_strings() {
    // A beam search copies the text of each beam for each token that may come next.
    const std::size_t length = 1 << 20;
    const engine::OutputText text({std::string(length, 'x')});
    const std::size_t before = allocated;
    for (int i = 0; i < 1000; ++i) {
        engine::OutputText copy = text;
        CHECK_EQ(copy.push("y"), "y");
    }
    CHECK(allocated - before < length);
}

int main() {
    RUN(b11_greedy_takes_the_likeliest_and_the_lower_of_equals);
    RUN(b11_draws_follow_the_distribution);
    RUN(b11_draws_are_repeatable);
    RUN(b11_log_probabilities);
    RUN(b11_bytes_become_valid_utf8);
    RUN(b11_stop_strings_and_end_of_text_end_requests);
    RUN(b11_stop_strings_end_the_text);
    RUN(b11_copies_share_their_stop_strings);
    return 0;
}
