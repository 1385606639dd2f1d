/* tf.train.Example: whole blocks of serialized records straight into columns.
 *
 * The format is three levels of length-delimited messages (Example > Features > map entry) above a Feature, a oneof of three lists. Nothing
 * is read that was not compared with the end of what holds it; nothing is written beyond the values that a column has room for.
 * The twin in examples.py gives the same columns and the same reports.
 */
#include "penstock.h"

/* ---- the wire format of protocol buffers: numbers, tags and lengths, none read that was not compared with the end of what holds it ---- */

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

/* ---- records ---- */

enum { BYTES = 1, FLOAT = 2, INT64 = 3 };
enum { FIXED, COUNT, FILL, SKIP };

typedef struct {
    int64_t name, name_length, kind, mode, count, missing;
} feature;

/* Where the entry of a feature lies in this record; `value` is NULL unless the entry has exactly one. */
typedef struct {
    const uint8_t *entry, *entry_end, *value, *value_end;
} place;

/* What one feature's lists came to so far. */
typedef struct {
    int64_t kind, count, limit;
    uint8_t *out;
} column;

/* ---- a Feature ---------------------------------------------------------------------------------------------------------- */

INLINE void put_bytes(column *to, const uint8_t *value, uint64_t length, state *now) {
    if (to->count < to->limit) {
        const int64_t span[2] = {value - now->buffer, (int64_t)length};
        memcpy(to->out + 16 * to->count, span, 16);
    }
    to->count++;
}

INLINE void put_int64(column *to, uint64_t value) {
    if (to->count < to->limit) memcpy(to->out + 8 * to->count, &value, 8);
    to->count++;
}

INLINE void put_floats(column *to, const uint8_t *values, int64_t num) {
    const int64_t room = to->limit - to->count;
    if (room > 0) memcpy(to->out + 4 * to->count, values, (size_t)(4 * (num < room ? num : room)));
    to->count += num;
}

/* Read the values of one list message of the wanted kind. */
static const uint8_t *read_list(const uint8_t *from, const uint8_t *end, int64_t kind, column *to, state *now) {
    while (from < end) {
        const uint8_t *at = from;
        uint64_t tag, value;
        from = read_tag(from, end, &tag, now);
        if (from == NULL) return NULL;
        const uint64_t wire = tag & 7;
        if (tag >> 3 != 1) {
            from = skip_field(at, from, end, tag, now);
        } else if (wire == 2) {
            const uint8_t *length_at = from;
            from = read_length(from, end, &value, now);
            if (from == NULL) return NULL;
            const uint8_t *stop = from + value;
            if (kind == BYTES) {
                put_bytes(to, from, value, now);
            } else if (kind == FLOAT) {
                if (value % 4) return fail(now, BAD_LENGTH, length_at);
                put_floats(to, from, (int64_t)(value / 4));
            } else {
                while (from < stop) {
                    from = read_varint(from, stop, &value, now);
                    if (from == NULL) return NULL;
                    put_int64(to, value);
                }
            }
            from = stop;
        } else if (kind == INT64 && wire == 0) {
            from = read_varint(from, end, &value, now);
            if (from == NULL) return NULL;
            put_int64(to, value);
        } else if (kind == FLOAT && wire == 5) {
            if (end - from < 4) return fail(now, BAD_LENGTH, at);
            put_floats(to, from, 1);
            from += 4;
        } else {
            return fail(now, BAD_WIRE, at);
        }
        if (from == NULL) return NULL;
    }
    return from;
}

/* Read a Feature message: of its kinds the last one counts, and lists of that kind are joined unless another stood between them. */
static const uint8_t *read_value(const uint8_t *from, const uint8_t *end, int64_t kind, column *to, state *now) {
    while (from < end) {
        const uint8_t *at = from;
        uint64_t tag, length;
        from = read_tag(from, end, &tag, now);
        if (from == NULL) return NULL;
        const uint64_t number = tag >> 3;
        if (number > 3) {
            from = skip_field(at, from, end, tag, now);
            if (from == NULL) return NULL;
            continue;
        }
        if ((tag & 7) != 2) return fail(now, BAD_WIRE, at);
        from = read_length(from, end, &length, now);
        if (from == NULL) return NULL;
        if ((int64_t)number != to->kind) {
            to->kind = (int64_t)number;
            to->count = 0;
        }
        if ((int64_t)number == kind && read_list(from, from + length, kind, to, now) == NULL) return NULL;
        from += length;
    }
    return from;
}

/* Read all values of a map entry, which the place says lies well formed. */
static const uint8_t *read_values(const place *where, int64_t kind, column *to, state *now) {
    const uint8_t *from = where->entry, *end = where->entry_end;
    if (where->value != NULL) return read_value(where->value, where->value_end, kind, to, now);
    while (from < end) {
        const uint8_t *at = from;
        uint64_t tag, length;
        from = read_tag(from, end, &tag, now);
        if (from == NULL) return NULL;
        if (tag >> 3 != 2) {
            from = skip_field(at, from, end, tag, now);
            if (from == NULL) return NULL;
            continue;
        }
        from = read_length(from, end, &length, now);
        if (from == NULL || read_value(from, from + length, kind, to, now) == NULL) return NULL;
        from += length;
    }
    return from;
}

/* ---- where the features of a record lie --------------------------------------------------------------------------------- */

typedef struct {
    const feature *features;
    const uint8_t *texts;
    const int64_t *table;
    uint64_t mask;
    int64_t num_features;
} plan;

/* Return the number of the declared feature of this name, or -1. The table is at most half full, so every search ends. */
static int64_t find(const plan *what, const uint8_t *name, uint64_t length) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t place = 0; place < length; place++) hash = (hash ^ name[place]) * UINT64_C(0x100000001b3);
    for (uint64_t spot = hash & what->mask;; spot = (spot + 1) & what->mask) {
        const int64_t number = what->table[spot];
        if (number < 0) return -1;
        const feature *one = what->features + number;
        if ((uint64_t)one->name_length == length && memcmp(what->texts + one->name, name, (size_t)length) == 0) return number;
    }
}

static const uint8_t *read_entry(const plan *what, const uint8_t *from, const uint8_t *end, place *places, state *now) {
    place found = {from, end, NULL, NULL};
    const uint8_t *name = from;
    uint64_t name_length = 0;
    int num_values = 0;
    while (from < end) {
        const uint8_t *at = from;
        uint64_t tag, length;
        from = read_tag(from, end, &tag, now);
        if (from == NULL) goto failed;
        if (tag >> 3 > 2) {
            from = skip_field(at, from, end, tag, now);
            if (from == NULL) goto failed;
            continue;
        }
        if ((tag & 7) != 2) {
            fail(now, BAD_WIRE, at);
            goto failed;
        }
        from = read_length(from, end, &length, now);
        if (from == NULL) goto failed;
        if (tag >> 3 == 1) {
            name = from;
            name_length = length;
        } else {
            found.value = num_values++ ? NULL : from;
            found.value_end = from + length;
        }
        from += length;
    }
    const int64_t number = find(what, name, name_length);
    if (number >= 0) places[number] = found; /* a later entry of the same name replaces an earlier one */
    return from;
failed:
    now->feature = find(what, name, name_length);
    return NULL;
}

static const uint8_t *read_features(const plan *what, const uint8_t *from, const uint8_t *end, place *places, state *now) {
    while (from < end) {
        const uint8_t *at = from;
        uint64_t tag, length;
        from = read_tag(from, end, &tag, now);
        if (from == NULL) return NULL;
        if (tag >> 3 != 1) {
            from = skip_field(at, from, end, tag, now);
            if (from == NULL) return NULL;
            continue;
        }
        if ((tag & 7) != 2) return fail(now, BAD_WIRE, at);
        from = read_length(from, end, &length, now);
        if (from == NULL || read_entry(what, from, from + length, places, now) == NULL) return NULL;
        from += length;
    }
    return from;
}

static const uint8_t *read_record(const plan *what, const uint8_t *from, const uint8_t *end, place *places, state *now) {
    while (from < end) {
        const uint8_t *at = from;
        uint64_t tag, length;
        from = read_tag(from, end, &tag, now);
        if (from == NULL) return NULL;
        if (tag >> 3 != 1) {
            from = skip_field(at, from, end, tag, now);
            if (from == NULL) return NULL;
            continue;
        }
        if ((tag & 7) != 2) return fail(now, BAD_WIRE, at);
        from = read_length(from, end, &length, now);
        if (from == NULL || read_features(what, from, from + length, places, now) == NULL) return NULL;
        from += length;
    }
    return from;
}

/* ---- columns ------------------------------------------------------------------------------------------------------------ */

static int64_t item_size(int64_t kind) { return kind == FLOAT ? 4 : kind == INT64 ? 8 : 16; }

/* Write what stands for a feature that the record does not have. */
static int put_missing(const plan *what, const feature *one, column *to, state *now) {
    if (one->mode == FILL || (one->mode == COUNT && one->missing >= 0)) return 1;
    if (one->missing < 0) return fail(now, MISSING, now->record) != NULL;
    if (one->kind == BYTES) {
        for (int64_t item = 0; item < one->count; item++) {
            const int64_t span[2] = {-1 - item, 0};
            memcpy(to->out + 16 * item, span, 16);
        }
    } else {
        memcpy(to->out, what->texts + one->missing, (size_t)(one->count * item_size(one->kind)));
    }
    to->count = one->count;
    return 1;
}

/* Write one feature of one record. */
static int put_feature(const plan *what, int64_t number, const place *where, int64_t row, const int64_t *outs, state *now) {
    const feature *one = what->features + number;
    uint8_t *out = (uint8_t *)(intptr_t)outs[2 * number];
    const int64_t *offsets = (const int64_t *)(intptr_t)outs[2 * number + 1];
    column to = {0, 0, 0, NULL};
    now->feature = number;
    if (one->mode == FIXED) {
        to.limit = one->count;
        to.out = out + row * one->count * item_size(one->kind);
    } else if (one->mode == FILL) {
        to.limit = offsets[row + 1] - offsets[row];
        to.out = out + offsets[row] * item_size(one->kind);
    }
    if (where->entry != NULL && read_values(where, one->kind, &to, now) == NULL) return 0;
    if (to.kind == 0) {
        if (!put_missing(what, one, &to, now)) return 0;
    } else if (to.kind != one->kind) {
        now->found = to.kind;
        return fail(now, WRONG_KIND, where->entry) != NULL;
    }
    if (one->mode == COUNT ? to.count % one->count != 0 : to.count != to.limit) {
        now->found = to.count;
        return fail(now, WRONG_COUNT, where->entry == NULL ? now->record : where->entry) != NULL;
    }
    if (one->mode == COUNT) ((int64_t *)(void *)out)[row] = to.count;
    return 1;
}

/* Parse one record into a row of the columns; returns 0 when it is no good, with a report as penstock_parse_examples gives it. */
static int parse_row(const plan *what, const uint8_t *buffer, int64_t size, int64_t start, int64_t length, int64_t row, const int64_t *outs,
                     place *places, int64_t *report) {
    state now = {buffer, buffer, 0, -1, 0, 0};
    int good = start >= 0 && length >= 0 && start <= size && length <= size - start;
    if (good) {
        now.record = buffer + start;
        memset(places, 0, (size_t)what->num_features * sizeof(place));
        good = read_record(what, now.record, now.record + length, places, &now) != NULL;
        for (int64_t number = 0; good && number < what->num_features; number++)
            if (what->features[number].mode != SKIP) good = put_feature(what, number, places + number, row, outs, &now);
    } else {
        now.code = BAD_SPAN;
    }
    if (!good) {
        report[0] = now.code;
        report[1] = now.feature;
        report[2] = now.at;
        report[3] = now.found;
    }
    return good;
}

/* Parse record i = buffer[starts[i] : starts[i] + lengths[i]] for every i into row i of the columns.
 *
 * features: num_features of (name: where it begins in `texts`, name_length, kind, mode, count, missing).
 *   FIXED: exactly `count` values a record. COUNT: the number of values, a multiple of `count`, to an int64 column.
 *   FILL: the values of row i to places offsets[i]..offsets[i + 1] of a column. SKIP: nothing.
 *   missing: where in `texts` the default lies (of bytes and counts any number from 0 on); -1: such a record is refused.
 * outs: two addresses for each feature: of its column, and of its offsets or 0. A value of bytes is two int64: where in `buffer` it begins
 *   and its length; (-1 - i, 0) for item i of the default.
 * table: size mask + 1, a power of two, at most half full: the numbers of the features by FNV-1a of their names, or -1.
 * work: 4 * num_features pointers, of any content.
 * Returns -1, or the first row that is no good; report then has its code, its feature or -1, where in the record, what was found. */
API int64_t penstock_parse_examples(const uint8_t *buffer, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t num,
                                    const int64_t *features, int64_t num_features, const uint8_t *texts, const int64_t *table,
                                    int64_t mask, const int64_t *outs, void *work, int64_t *report) {
    const plan what = {(const feature *)features, texts, table, (uint64_t)mask, num_features};
    for (int64_t row = 0; row < num; row++)
        if (!parse_row(&what, buffer, size, starts[row], lengths[row], row, outs, work, report)) return row;
    return -1;
}

enum { CHECK_DATA, FEATURES, NUM_FEATURES, TEXTS, TABLE, MASK, OUTS, WORK, ROW };

/* A taker of penstock_stream_spans: checks the frames of TFRecord that the spans are, and parses what is in them into row context[ROW] and
 * those after it. The context has numbers and addresses as penstock_parse_examples has them, and whether the data are checked as well. */
API int64_t penstock_take_framed_examples(int64_t *context, const uint8_t *data, int64_t size, const int64_t *starts,
                                          const int64_t *lengths, int64_t num) {
    const plan what = {(const feature *)(intptr_t)context[FEATURES], (const uint8_t *)(intptr_t)context[TEXTS],
                       (const int64_t *)(intptr_t)context[TABLE], (uint64_t)context[MASK], context[NUM_FEATURES]};
    const int64_t *const outs = (const int64_t *)(intptr_t)context[OUTS];
    int64_t report[4];
    for (int64_t row = 0; row < num; row++, context[ROW]++) {
        const int64_t start = starts[row], length = lengths[row];
        if (penstock_frame_status(data + start, length, context[CHECK_DATA] != 0) != FRAME_GOOD) return row;
        if (!parse_row(&what, data, size, start + HEADER_BYTES, length - FRAME_BYTES, context[ROW], outs, (void *)(intptr_t)context[WORK], report))
            return row;
    }
    return num;
}
