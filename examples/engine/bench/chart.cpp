#include "bench/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace engine {

namespace {

// The plot inside the picture, in SVG units.
constexpr double width = 860, height = 480, left = 76, right = 826, top = 92, bottom = 416;

// Colours that stay apart for the colour-blind; the shapes tell the runs apart without any.
constexpr std::array<const char*, 2> colours = {"#d55e00", "#0072b2"};

template <class... Numbers> std::string print(const char* pattern, Numbers... numbers) {
    char text[256];
    std::snprintf(text, sizeof text, pattern, numbers...);
    return text;
}

std::string label(double x, double y, const char* anchor, const std::string& more,
                  const std::string& content) {
    std::string escaped;
    for (const char c : content)
        escaped += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
    return print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", x, y, anchor) + more + ">" +
           escaped + "</text>\n";
}

std::string segment(double x1, double y1, double x2, double y2, const char* colour) {
    return print("<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour);
}

std::string mark(std::size_t run, double x, double y) {
    if (run == 0) return print("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x, y);
    return print("<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\"/>\n", x - 3.5, y - 3.5);
}

/// Whole powers of ten around all times, in milliseconds.
struct Scale {
    int first = 0, last = 1;
    std::size_t count = 1;

    explicit Scale(const BenchReport& report) {
        double least = 1e300, most = 1e-300;
        for (const BenchSummary& summary : report.summaries) {
            for (const double time : summary.first_token_times) {
                least = std::min(least, time * 1e3);
                most = std::max(most, time * 1e3);
            }
            count = std::max(count, summary.first_token_times.size());
        }
        first = static_cast<int>(std::floor(std::log10(least)));
        last = std::max(first + 1, static_cast<int>(std::ceil(std::log10(most))));
    }
    [[nodiscard]] double x(std::size_t index) const {
        return left + (static_cast<double>(index) + 0.5) / static_cast<double>(count) *
                          (right - left);
    }
    [[nodiscard]] double y(double milliseconds) const {
        return bottom - (std::log10(milliseconds) - first) / (last - first) * (bottom - top);
    }
};

std::string axes(const Scale& scale) {
    std::string out;
    for (int power = scale.first; power <= scale.last; ++power) {
        const double base = std::pow(10.0, power);
        out += segment(left - 6, scale.y(base), right, scale.y(base), "#ccc");
        out += label(left - 10, scale.y(base) + 4.5, "end", "", print("%g ms", base));
        for (int step = 2; step < 10 && power < scale.last; ++step)
            out += segment(left, scale.y(step * base), right, scale.y(step * base), "#eee");
    }
    const std::size_t every = scale.count > 16 ? 8 : 1;
    for (std::size_t i = every; i <= scale.count; i += every)
        out += label(scale.x(i - 1), bottom + 20, "middle", "", std::to_string(i));
    out += segment(left, top, left, bottom, "#444") + segment(left, bottom, right, bottom, "#444");
    out += label((left + right) / 2, bottom + 46, "middle", "", "request, in order of arrival");
    return out;
}

std::string curves(const BenchReport& report, const Scale& scale) {
    std::string out;
    double x = left;
    for (std::size_t run = 0; run < report.runs.size(); ++run) {
        out += print("<g fill=\"%s\">\n", colours[run % colours.size()]);
        const std::vector<double>& times = report.summaries[run].first_token_times;
        for (std::size_t i = 0; i < times.size(); ++i)
            out += mark(run, scale.x(i), scale.y(times[i] * 1e3));
        out += mark(run, x + 6, top - 20) + "</g>\n";
        const std::string text = report.runs[run].label;
        out += label(x + 18, top - 15.5, "start", "", text);
        x += 60 + 7.5 * static_cast<double>(text.size());
    }
    return out;
}

}  // namespace

std::string chart_svg(const BenchReport& report) {
    const Scale scale(report);
    std::string out = print(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
        "height=\"%.0f\" ",
        width, height, width, height);
    out += "font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\" font-size=\"13\" "
           "fill=\"#222\">\n<title>Time to first token</title>\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    out += label(left, 30, "start", " font-size=\"18\" font-weight=\"bold\"",
                 "Time to first token, " + report.workload.name);
    out += label(left, 50, "start", " fill=\"#666\"", report.workload.description);
    return out + axes(scale) + curves(report, scale) + "</svg>\n";
}

}  // namespace engine
