/* Where records lie: file, offset and length of each, out of tables that are larger than the caches. See lookup.py. */
#include "penstock.h"

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch((address), 0, 3)
#else
#define PREFETCH(address) (void)(address)
#endif

enum { AHEAD = 16 };

INLINE int64_t entry(const unsigned char *table, int64_t width, int64_t row) {
    uint32_t narrow;
    int64_t wide;
    if (width == 4) {
        memcpy(&narrow, table + 4 * row, sizeof narrow);
        return (int64_t)narrow;
    }
    memcpy(&wide, table + 8 * row, sizeof wide);
    return wide;
}

/* The last of `num` numbers in order that is not above `row`; the first one is not. Without a branch that depends on them. */
INLINE int64_t last_up_to(const int64_t *numbers, int64_t num, int64_t row) {
    const int64_t *from = numbers;
    for (int64_t left = num; left > 1;) {
        const int64_t half = left / 2;
        from = from[half] <= row ? from + half : from;
        left -= half;
    }
    return from - numbers;
}

/* Writes file, offset and length of record rows[i] to out[0][i], out[1][i], out[2][i], int64 [3, num].
 *
 * starts: the number of the first record of each file, and the number of all; num_starts of them, in order, the first 0. offsets and lengths: of
 * each record; int64 (8 bytes) or uint32 (4). Returns -1, or the first i whose record is not there. */
API int64_t penstock_look_up(const int64_t *rows, int64_t num, const int64_t *starts, int64_t num_starts, const unsigned char *offsets,
                                  int64_t offset_bytes, const unsigned char *lengths, int64_t length_bytes, int64_t *out) {
    const uint64_t count = num_starts > 0 ? (uint64_t)starts[num_starts - 1] : 0;
    int64_t file = 0;
    for (int64_t place = 0; place < num; place++)
        if ((uint64_t)rows[place] >= count) return place;
    for (int64_t place = 0; place < num; place++) {
        const int64_t row = rows[place];
        if (place + AHEAD < num) {
            PREFETCH(offsets + offset_bytes * rows[place + AHEAD]);
            PREFETCH(lengths + length_bytes * rows[place + AHEAD]);
        }
        if (row < starts[file] || row >= starts[file + 1]) file = last_up_to(starts, num_starts, row);
        out[place] = file;
        out[num + place] = entry(offsets, offset_bytes, row);
        out[2 * num + place] = entry(lengths, length_bytes, row);
    }
    return -1;
}
