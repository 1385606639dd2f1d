/* The wire format of protocol buffers: numbers, tags and lengths, none read that was not compared with the end of what holds it. */
#ifndef PENSTOCK_WIRE_H
#define PENSTOCK_WIRE_H

#include "penstock.h"

enum { BAD_SPAN = 1, BAD_VARINT, BAD_TAG, BAD_LENGTH, BAD_WIRE, BAD_DEPTH, MISSING, WRONG_KIND, WRONG_COUNT };
/* So many groups (of unknown fields) may lie in each other; nothing else nests without bound. */
enum { MAX_DEPTH = 64 };

typedef struct {
    const uint8_t *buffer, *record;
    int64_t code, feature, at, found;
} state;

static const uint8_t *fail(state *now, int64_t code, const uint8_t *at) {
    now->code = code;
    now->at = at - now->record;
    return NULL;
}

static const uint8_t *long_varint(const uint8_t *from, const uint8_t *end, uint64_t *value, state *now) {
    const uint8_t *at = from;
    uint64_t result = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (from == end) return fail(now, BAD_VARINT, at);
        const uint64_t byte = *from++;
        result |= (byte & 0x7f) << shift; /* of the tenth byte one bit counts, as in protobuf */
        if (byte < 0x80) {
            *value = result;
            return from;
        }
    }
    return fail(now, BAD_VARINT, at);
}

INLINE const uint8_t *read_varint(const uint8_t *from, const uint8_t *end, uint64_t *value, state *now) {
    if (from < end && *from < 0x80) {
        *value = *from;
        return from + 1;
    }
    return long_varint(from, end, value, now);
}

INLINE const uint8_t *read_tag(const uint8_t *from, const uint8_t *end, uint64_t *tag, state *now) {
    const uint8_t *next = read_varint(from, end, tag, now);
    if (next == NULL) return NULL;
    return *tag < 8 || *tag > UINT32_MAX ? fail(now, BAD_TAG, from) : next;
}

/* Read a length and check that so many bytes are left. */
INLINE const uint8_t *read_length(const uint8_t *from, const uint8_t *end, uint64_t *length, state *now) {
    const uint8_t *next = read_varint(from, end, length, now);
    if (next == NULL) return NULL;
    return *length > (uint64_t)(end - next) ? fail(now, BAD_LENGTH, from) : next;
}

static const uint8_t *skip_plain(const uint8_t *at, const uint8_t *from, const uint8_t *end, uint64_t tag, state *now) {
    uint64_t length;
    switch (tag & 7) {
        case 0: return read_varint(from, end, &length, now);
        case 1: return end - from < 8 ? fail(now, BAD_LENGTH, at) : from + 8;
        case 2:
            from = read_length(from, end, &length, now);
            return from == NULL ? NULL : from + length;
        case 5: return end - from < 4 ? fail(now, BAD_LENGTH, at) : from + 4;
        default: return fail(now, BAD_TAG, at);
    }
}

/* Step over an unknown field whose tag stood at `at`. */
static const uint8_t *skip_field(const uint8_t *at, const uint8_t *from, const uint8_t *end, uint64_t tag, state *now) {
    uint64_t open[MAX_DEPTH];
    int depth = 1;
    if ((tag & 7) != 3) return skip_plain(at, from, end, tag, now);
    open[0] = tag >> 3;
    while (depth > 0) {
        at = from;
        if (from == end) return fail(now, BAD_LENGTH, at);
        from = read_tag(from, end, &tag, now);
        if (from == NULL) return NULL;
        if ((tag & 7) == 3) {
            if (depth == MAX_DEPTH) return fail(now, BAD_DEPTH, at);
            open[depth++] = tag >> 3;
        } else if ((tag & 7) == 4) {
            if (open[--depth] != tag >> 3) return fail(now, BAD_TAG, at);
        } else {
            from = skip_plain(at, from, end, tag, now);
            if (from == NULL) return NULL;
        }
    }
    return from;
}

#endif
