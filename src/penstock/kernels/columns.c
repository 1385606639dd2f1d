/* Rows of several tables, gathered column by column into one array for each column.
 *
 * All is done in blocks of rows small enough that their numbers stay in the first-level cache, whatever the number of columns. Many rows
 * that follow one another in one table, as they do in an order that is not shuffled, are copied as one: a stream that the hardware
 * reads ahead.
 */
#include "penstock.h"

enum { BLOCK = 1024 };

/* For widths that are known when this is compiled, a copy is one move. */
#define COPY_ROWS(width)                                                                                                 \
    for (int64_t row = 0; row < num; row++)                                                                              \
        memcpy(out + (places ? places[row] : first + row) * (width), bases[tables[row] * num_columns] + rows[row] * (width), \
               (size_t)(width))

/* Copy `num` rows of one column: row i is rows[i] of tables[i], and goes to places[i] or first + i. */
INLINE void copy_rows(unsigned char *const *bases, int64_t num_columns, const int64_t *restrict tables, const int64_t *restrict rows,
                      const int64_t *restrict places, int64_t first, int64_t num, int64_t width, unsigned char *restrict out) {
    switch (width) {
        case 1: COPY_ROWS(1); break;
        case 2: COPY_ROWS(2); break;
        case 4: COPY_ROWS(4); break;
        case 8: COPY_ROWS(8); break;
        case 16: COPY_ROWS(16); break;
        default: COPY_ROWS(width); break;
    }
}

/* Gather rows; return -1, or the first row that is not there: then nothing is written.
 *
 * bases: [num_tables * num_columns], where each column of each table begins, its rows without gaps.
 * counts: [num_tables], rows of each table.
 * widths: [num_columns], bytes of a row in each column.
 * tables, rows: [num_rows], where each row comes from.
 * places: [num_rows], where it goes; NULL for 0, 1, 2...
 * outs: [num_columns], arrays of out_rows rows.
 */
API int64_t penstock_gather_columns(unsigned char *const *bases, const int64_t *counts, int64_t num_tables, const int64_t *widths,
                                    int64_t num_columns, const int64_t *tables, const int64_t *rows, const int64_t *places,
                                    int64_t num_rows, unsigned char *const *outs, int64_t out_rows) {
    for (int64_t row = 0; row < num_rows; row++) {
        if ((uint64_t)tables[row] >= (uint64_t)num_tables || (uint64_t)rows[row] >= (uint64_t)counts[tables[row]]) return row;
        if ((uint64_t)(places ? places[row] : row) >= (uint64_t)out_rows) return row;
    }
    int64_t num;
    for (int64_t first = 0; first < num_rows; first += num) {
        const int64_t left = num_rows - first;
        const int64_t *from = tables + first, *which = rows + first, *to = places ? places + first : NULL;
        const int64_t target = to ? to[0] : first;
        int64_t run = 1;
        while (run < left && from[run] == from[0] && which[run] == which[0] + run && (!to || to[run] == target + run)) run++;
        num = run >= BLOCK ? run : left < BLOCK ? left : BLOCK;
        for (int64_t column = 0; column < num_columns; column++) {
            const int64_t width = widths[column];
            if (width == 0) continue;
            if (run == num)
                memcpy(outs[column] + target * width, bases[from[0] * num_columns + column] + which[0] * width, (size_t)(num * width));
            else
                copy_rows(bases + column, num_columns, from, which, to, first, num, width, outs[column]);
        }
    }
    return -1;
}

/* ---- spans copied ---- a copy of a hundred kilobytes takes as long as hundreds of lines of Python ---- */

/* Copy lengths[i] bytes from sources[i] to targets[i]; nothing overlaps. */
API void penstock_copy_spans(unsigned char *const *sources, unsigned char *const *targets, const int64_t *lengths, int64_t num) {
    for (int64_t span = 0; span < num; span++) memcpy(targets[span], sources[span], (size_t)lengths[span]);
}

/* ---- where records lie: file, offset and length of each, out of tables that are larger than the caches; see spans.py ---- */

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
