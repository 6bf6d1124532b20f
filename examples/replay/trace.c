#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prompt tokens lie below this, output tokens at it and above; both are below RKV_TEXT_ID_LIMIT. */
#define OUTPUT_TOKEN_BASE 0x40000000u

#define REQUEST_LIMIT (1u << 24)

typedef struct reader {
    const uint8_t *next, *end;
    int failed;
} reader;

static uint32_t read_varint(reader *r)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (r->next == r->end)
            break;
        uint8_t byte = *r->next++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            if (value > UINT32_MAX)
                break;
            return (uint32_t)value;
        }
    }
    r->failed = 1;
    return 0;
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    uint8_t *data = NULL;
    size_t capacity = 0, got = 1;
    for (*size = 0; got > 0; *size += got) {
        if (*size == capacity) {
            capacity = capacity ? capacity * 2 : 1 << 16;
            data = realloc(data, capacity);
            if (data == NULL)
                abort();
        }
        got = fread(data + *size, 1, capacity - *size, file);
    }
    if (ferror(file)) {
        free(data);
        data = NULL;
    }
    fclose(file);
    return data;
}

/* One request: keeps units of an earlier one, adds new ones. Returns 0 for a senseless record. */
static int read_request(trace *t, reader *r, size_t index, int implied, size_t *unit_count,
                        size_t *unit_capacity, uint32_t *next_unit)
{
    uint32_t distance = read_varint(r), kept = read_varint(r), added = read_varint(r);
    uint64_t total = (uint64_t)kept + added;
    uint64_t unit_limit = OUTPUT_TOKEN_BASE / t->unit_size;
    if (r->failed || distance > index || (distance == 0 && kept > 0) || total == 0)
        return 0;
    if (total * t->unit_size >= OUTPUT_TOKEN_BASE || added + (uint64_t)*next_unit > unit_limit)
        return 0;
    const trace_request *base = &t->requests[index - distance];
    if (kept > 0 && kept > (base->token_count + t->unit_size - 1) / t->unit_size)
        return 0;
    /* An id takes a byte at least: no memory is asked for what a file that was cut off lacks. */
    if (!implied && added > (size_t)(r->end - r->next))
        return 0;
    if (*unit_count + total > *unit_capacity) {
        *unit_capacity = 2 * (*unit_count + total);
        t->units = realloc(t->units, *unit_capacity * sizeof *t->units);
        if (t->units == NULL)
            abort();
    }
    uint32_t *units = t->units + *unit_count;
    if (kept > 0)
        memcpy(units, t->units + base->first_unit, kept * sizeof *units);
    for (uint64_t i = kept; i < total; i++) {
        units[i] = implied ? (*next_unit)++ : read_varint(r);
        if (r->failed || units[i] >= unit_limit)
            return 0;
    }
    uint32_t last = t->unit_size > 1 ? read_varint(r) : 1;
    uint32_t output_count = read_varint(r);
    if (r->failed || last == 0 || last > t->unit_size || output_count >= OUTPUT_TOKEN_BASE)
        return 0;
    uint32_t token_count = (uint32_t)(total - 1) * t->unit_size + last;
    t->requests[index] = (trace_request){*unit_count, token_count, output_count};
    *unit_count += total;
    t->prompt_token_count += token_count;
    t->output_token_count += output_count;
    t->distinct_token_count += (uint64_t)added * t->unit_size + output_count;
    if (token_count + output_count > t->longest)
        t->longest = token_count + output_count;
    return 1;
}

static int parse(trace *t, const uint8_t *data, size_t size, const char *path)
{
    char head[128] = "", ids[16] = "";
    unsigned version = 0, unit = 0, count = 0;
    const uint8_t *newline = memchr(data, '\n', size < sizeof head ? size : sizeof head - 1);
    if (newline != NULL)
        memcpy(head, data, (size_t)(newline - data));
    int fields = sscanf(head, "rkv-trace %u %31s unit %u ids %15s requests %u", &version, t->name,
                        &unit, ids, &count);
    int implied = strcmp(ids, "implied") == 0;
    if (fields != 5 || version != 1 || unit == 0 || unit > 65536 || count == 0 ||
        count > REQUEST_LIMIT || (!implied && strcmp(ids, "explicit") != 0)) {
        fprintf(stderr, "%s: not a trace file of version 1\n", path);
        return 0;
    }
    t->unit_size = unit;
    t->request_count = count;
    t->requests = calloc(count, sizeof *t->requests);
    if (t->requests == NULL)
        abort();
    reader r = {newline + 1, data + size, 0};
    size_t unit_count = 0, unit_capacity = 0;
    uint32_t next_unit = 0;
    for (size_t i = 0; i < count; i++) {
        if (!read_request(t, &r, i, implied, &unit_count, &unit_capacity, &next_unit)) {
            fprintf(stderr, "%s: request %zu of %u is damaged\n", path, i + 1, count);
            return 0;
        }
    }
    if (r.next != r.end) {
        fprintf(stderr, "%s: %td bytes after the last request\n", path, r.end - r.next);
        return 0;
    }
    return 1;
}

int trace_read(trace *out, const char *path)
{
    memset(out, 0, sizeof *out);
    size_t size;
    uint8_t *data = read_file(path, &size);
    if (data == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 0;
    }
    int good = parse(out, data, size, path);
    free(data);
    if (!good)
        trace_free(out);
    return good;
}

void trace_free(trace *t)
{
    free(t->requests);
    free(t->units);
    memset(t, 0, sizeof *t);
}

/*
 * Units of one token are the tokens themselves. A larger unit is spread over the ids below
 * OUTPUT_TOKEN_BASE by an odd factor, so that equal units have equal tokens and different units
 * have no token in common: two prompts then agree exactly as far as their units do.
 */
void trace_prompt(const trace *t, const trace_request *request, uint32_t *tokens)
{
    const uint32_t *units = t->units + request->first_unit;
    if (t->unit_size == 1) {
        memcpy(tokens, units, request->token_count * sizeof *tokens);
        return;
    }
    for (uint32_t done = 0; done < request->token_count; units++) {
        uint32_t left = request->token_count - done;
        uint32_t count = left < t->unit_size ? left : t->unit_size;
        uint32_t first = *units * t->unit_size;
        for (uint32_t i = 0; i < count; i++)
            tokens[done + i] = (first + i) * 0x9e3779b1u & (OUTPUT_TOKEN_BASE - 1);
        done += count;
    }
}

uint32_t trace_output_token(uint64_t n)
{
    return OUTPUT_TOKEN_BASE + (uint32_t)(n & (OUTPUT_TOKEN_BASE - 1));
}
