// From the logits of a step to what comes next: a token for a sample, other beams for a search.
#ifndef ENGINE_SERVE_DECODER_HPP
#define ENGINE_SERVE_DECODER_HPP

#include "model/config.hpp"
#include "serve/metrics.hpp"
#include "serve/scheduler.hpp"
#include "serve/tokenizer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace engine {

class Decoder {
public:
    Decoder(const ModelConfig& model, const Tokenizer& tokenizer, Scheduler& scheduler,
            Metrics& metrics)
        : model_(model), tokenizer_(tokenizer), scheduler_(scheduler), metrics_(metrics) {}

    /// Takes the logits after the last token of a branch. Returns why the request is over, if so.
    /// Branches of the request may be gone then: the losing beams.
    [[nodiscard]] std::optional<Finish> take(Request& request, Branch& branch,
                                             const float* logits, Clock::time_point now);
    /// Which tokens of a draft are those that will be drawn, one after another. The logits are
    /// those after the branch's last token and after each of the draft's.
    [[nodiscard]] std::vector<std::size_t> accept(const Request& request, const Branch& branch,
                                                  const Draft& draft, const float* logits) const;
    /// Tells the listener the tokens of a branch that were held back until now.
    static void tell(const Request& request, const Branch& branch, std::size_t sequence);

private:
    const ModelConfig& model_;
    const Tokenizer& tokenizer_;
    Scheduler& scheduler_;
    Metrics& metrics_;

    [[nodiscard]] std::uint32_t next_token(const Request& request, const Branch& branch,
                                           const float* logits, std::size_t ahead) const;
    void begin_samples(Request& request);
    void draw(Request& request, Branch& branch, const float* logits, Clock::time_point now);
    void note_candidates(const Request& request, Branch& branch, const float* logits) const;
    [[nodiscard]] bool ends_with(const Request& request, const Branch& branch,
                                 std::uint32_t id) const;
    [[nodiscard]] bool is_end_token(const Request& request, std::uint32_t id) const;
    void search(Request& request, Clock::time_point now);
    void observe(Request& request, Branch& branch, Clock::time_point now);
};

}  // namespace engine

#endif  // ENGINE_SERVE_DECODER_HPP
