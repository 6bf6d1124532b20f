#include "serve/text.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace engine {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

/// What a string begins with.
struct Lead {
    enum Kind { complete, incomplete, invalid } kind;
    /// Bytes of the character, of its beginning, or of what is to be replaced.
    std::size_t bytes;
};

/// Looks at the first character of a string that is not empty.
Lead first_character(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return {Lead::complete, 1};
    if (lead < 0xC2 || lead > 0xF4) return {Lead::invalid, 1};
    const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    for (std::size_t i = 1; i < length; ++i) {
        if (i == text.size()) return {Lead::incomplete, i};
        unsigned char least = 0x80, most = 0xBF;
        if (i == 1 && lead == 0xE0) least = 0xA0;  // shorter forms exist for what is below
        if (i == 1 && lead == 0xED) most = 0x9F;   // surrogates
        if (i == 1 && lead == 0xF0) least = 0x90;
        if (i == 1 && lead == 0xF4) most = 0x8F;  // beyond Unicode
        if (byte(i) < least || byte(i) > most) return {Lead::invalid, i};
    }
    return {Lead::complete, length};
}

/// Length of the longest end of `text` that `word` begins with, but is not whole.
std::size_t beginning_at_end(std::string_view text, std::string_view word) {
    if (word.empty()) return 0;
    for (std::size_t length = std::min(text.size(), word.size() - 1); length > 0; --length)
        if (text.substr(text.size() - length) == word.substr(0, length)) return length;
    return 0;
}

}  // namespace

std::vector<std::uint32_t> encode(std::string_view text) {
    std::vector<std::uint32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
}

std::string_view decode(std::uint32_t id) {
    static const std::array<char, 256> bytes = [] {
        std::array<char, 256> all{};
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i);
        return all;
    }();
    return id < bytes.size() ? std::string_view(&bytes[id], 1) : std::string_view();
}

std::size_t character_count(std::string_view text) {
    const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins));
}

std::string Utf8Stream::push(std::string_view bytes) {
    pending_ += bytes;
    std::string out;
    std::string_view rest = pending_;
    while (!rest.empty()) {
        const Lead lead = first_character(rest);
        if (lead.kind == Lead::incomplete) break;
        out += lead.kind == Lead::complete ? rest.substr(0, lead.bytes) : replacement;
        rest.remove_prefix(lead.bytes);
    }
    pending_ = std::string(rest);
    return out;
}

std::string Utf8Stream::finish() {
    return std::exchange(pending_, {}).empty() ? std::string() : std::string(replacement);
}

OutputText::OutputText(std::vector<std::string> stop)
    : stop_(std::make_shared<const std::vector<std::string>>(std::move(stop))) {}

std::size_t OutputText::find_stop(const std::string& text) const {
    std::size_t end = std::string::npos;
    for (const std::string& word : *stop_)
        if (!word.empty()) end = std::min(end, text.find(word));
    return end;
}

bool OutputText::stops_with(std::string_view bytes) const {
    return stopped_ || find_stop(std::string(held_).append(bytes)) != std::string::npos;
}

std::string OutputText::push(std::string_view bytes) {
    if (stopped_) return {};
    held_ += bytes;
    const std::size_t end = find_stop(held_);
    if (end != std::string::npos) {
        stopped_ = true;
        held_.resize(end);
        return finish();
    }
    std::size_t kept = 0;
    for (const std::string& word : *stop_) kept = std::max(kept, beginning_at_end(held_, word));
    const std::string certain = held_.substr(0, held_.size() - kept);
    held_.erase(0, certain.size());
    return utf8_.push(certain);
}

std::string OutputText::finish() {
    std::string text = utf8_.push(std::exchange(held_, {}));
    return text + utf8_.finish();
}

}  // namespace engine
