#include "chart.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

/* The plot inside the picture, in SVG units. */
enum { WIDTH = 860, HEIGHT = 520, LEFT = 76, RIGHT = 826, TOP = 84, BOTTOM = 448 };

/* Colours that stay apart for the colour-blind; the markers tell the lines apart without any. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#000000", "#8c6d1f"};
static const unsigned colour_count = sizeof colours / sizeof *colours;

typedef struct scale {
    int first, last; /* powers of two at the ends of the x axis */
} scale;

static double x_of(const scale *axis, double tokens)
{
    return LEFT + (log2(tokens) - axis->first) / (axis->last - axis->first) * (RIGHT - LEFT);
}

static double y_of(double rate)
{
    return BOTTOM - rate * (BOTTOM - TOP);
}

static scale scale_for(const chart_line *lines, unsigned line_count)
{
    double least = HUGE_VAL, most = 1;
    for (unsigned i = 0; i < line_count; i++) {
        least = fmin(least, (double)lines[i].pool_tokens[0]);
        most = fmax(most, (double)lines[i].pool_tokens[lines[i].point_count - 1]);
    }
    scale axis = {(int)floor(log2(least)), (int)ceil(log2(most))};
    if (axis.first == axis.last)
        axis.last++;
    return axis;
}

static void text(FILE *out, double x, double y, const char *anchor, const char *more,
                 const char *content)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, more);
    for (const char *c = content; *c; c++) {
        if (*c == '<' || *c == '>' || *c == '&')
            fprintf(out, "&#%d;", *c);
        else
            fputc(*c, out);
    }
    fputs("</text>\n", out);
}

static void segment(FILE *out, double x1, double y1, double x2, double y2, const char *colour)
{
    fprintf(out, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour);
}

static void axes(FILE *out, const scale *axis)
{
    char label[24], size[16];
    for (int percent = 0; percent <= 100; percent += 10) {
        double y = y_of(percent / 100.0);
        segment(out, LEFT - (percent % 20 ? 4 : 6), y, RIGHT, y, percent ? "#e4e4e4" : "#444");
        if (percent % 20 == 0) {
            snprintf(label, sizeof label, "%d %%", percent);
            text(out, LEFT - 10, y + 4.5, "end", "", label);
        }
    }
    /* At most a dozen labels fit side by side. */
    int every = (axis->last - axis->first) / 12 + 1;
    for (int power = axis->first; power <= axis->last; power++) {
        double x = x_of(axis, ldexp(1, power));
        int labelled = (power - axis->first) % every == 0;
        segment(out, x, TOP, x, BOTTOM, "#e4e4e4");
        segment(out, x, BOTTOM, x, BOTTOM + (labelled ? 6 : 4), "#444");
        if (labelled)
            text(out, x, BOTTOM + 22, "middle", "", report_size(UINT64_C(1) << power, size));
    }
    segment(out, LEFT, TOP, LEFT, BOTTOM, "#444");
    segment(out, LEFT, BOTTOM, RIGHT, BOTTOM, "#444");
    text(out, (LEFT + RIGHT) / 2.0, BOTTOM + 50, "middle", "",
         "pool size in tokens (logarithmic; Ki = 1,024, Mi = 1,048,576)");
    text(out, -(TOP + BOTTOM) / 2.0, 22, "middle", " transform=\"rotate(-90)\"",
         "prompt tokens found in the cache");
}

static void marker(FILE *out, unsigned shape, double x, double y)
{
    switch (shape % 4) {
    case 0:
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>\n", x, y);
        break;
    case 1:
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\"/>\n", x - 4, y - 4);
        break;
    case 2:
        fprintf(out, "<path d=\"M%.1f %.1fl5.5 9.5h-11z\"/>\n", x, y - 6);
        break;
    default:
        fprintf(out, "<path d=\"M%.1f %.1fl6 6l-6 6l-6 -6z\"/>\n", x, y - 6);
    }
}

static void curve(FILE *out, const scale *axis, const chart_line *line, unsigned index)
{
    const char *colour = colours[index % colour_count];
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\" points=\"", colour);
    for (unsigned i = 0; i < line->point_count; i++)
        fprintf(out, "%s%.1f,%.1f", i ? " " : "", x_of(axis, (double)line->pool_tokens[i]),
                y_of(line->hit_rates[i]));
    fprintf(out, "\"/>\n<g fill=\"%s\">\n", colour);
    for (unsigned i = 0; i < line->point_count; i++)
        marker(out, index, x_of(axis, (double)line->pool_tokens[i]), y_of(line->hit_rates[i]));
    fputs("</g>\n", out);
}

/* One row between the subtitle and the plot, from right to left. */
static void legend(FILE *out, const chart_line *lines, unsigned line_count)
{
    double x = RIGHT;
    for (unsigned i = line_count; i-- > 0;) {
        x -= 8.0 * (double)strlen(lines[i].name);
        text(out, x, TOP - 14, "start", "", lines[i].name);
        fprintf(out, "<g fill=\"%s\">\n", colours[i % colour_count]);
        segment(out, x - 34, TOP - 18.5, x - 8, TOP - 18.5, colours[i % colour_count]);
        marker(out, i, x - 21, TOP - 18.5);
        fputs("</g>\n", out);
        x -= 56;
    }
}

int chart_writable(const char *path)
{
    FILE *out = fopen(path, "a");
    if (out == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 0;
    }
    fclose(out);
    return 1;
}

int chart_write(const char *path, const char *subtitle, const chart_line *lines,
                unsigned line_count)
{
    FILE *out = chart_writable(path) ? fopen(path, "w") : NULL;
    if (out == NULL)
        return 0;
    scale axis = scale_for(lines, line_count);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\" "
            "font-size=\"13\" fill=\"#222\">\n"
            "<title>Prefix cache hit rate by pool size</title>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    text(out, LEFT, 30, "start", " font-size=\"18\" font-weight=\"bold\"",
         "Prefix cache hit rate by pool size");
    text(out, LEFT, 50, "start", " fill=\"#666\"", subtitle);
    axes(out, &axis);
    for (unsigned i = 0; i < line_count; i++)
        curve(out, &axis, &lines[i], i);
    legend(out, lines, line_count);
    fputs("</svg>\n", out);
    int failed = ferror(out);
    if (fclose(out) != 0 || failed) {
        fprintf(stderr, "%s: could not be written whole\n", path);
        return 0;
    }
    return 1;
}
