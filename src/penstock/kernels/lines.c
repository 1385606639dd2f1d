/* Where lines, and the records of CSV files, end: a piece of a file at a time, at the speed of memory.
 *
 * 64 bytes become a mask with one bit per newline (and one per quote); what is looked at one by one are these bits alone.
 */
#include "penstock.h"

/* Where a piece of CSV begins or ends: before a field, inside one without quotes, inside quotes, or behind a quote that may close them. */
enum { BEFORE = 0, PLAIN = 1, QUOTED = 2, BEHIND = 3 };

INLINE uint64_t mask_plain(const uint8_t *data, uint8_t wanted) {
    uint64_t mask = 0;
    for (int place = 0; place < 64; place++) mask |= (uint64_t)(data[place] == wanted) << place;
    return mask;
}

#if WITH_X86
/* Every CPU with AVX2 has these two as well. */
#define AVX2_BITS __attribute__((target("avx2,bmi,popcnt")))

AVX2_BITS INLINE uint64_t mask_avx2(const uint8_t *data, uint8_t wanted) {
    const __m256i each = _mm256_set1_epi8((char)wanted);
    const __m256i low = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)data), each);
    const __m256i high = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(data + 32)), each);
    return (uint64_t)(uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

/* Every x86-64 has SSE2. */
INLINE uint64_t mask_sse2(const uint8_t *data, uint8_t wanted) {
    const __m128i each = _mm_set1_epi8((char)wanted);
    uint64_t mask = 0;
    for (int part = 0; part < 4; part++)
        mask |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * part)), each)) << 16 * part;
    return mask;
}
#define mask_any mask_sse2
#else
#define mask_any mask_plain
#endif

/* The last bytes of a piece, fewer than 64, as a block of their own: nothing is read behind the piece. */
INLINE const uint8_t *block_of(const uint8_t *data, int64_t size, int64_t from, uint8_t *last, int *count) {
    if (size - from >= 64) {
        *count = 64;
        return data + from;
    }
    *count = (int)(size - from);
    memset(last, 0, 64);
    memcpy(last, data + from, (size_t)*count);
    return last;
}

INLINE uint64_t first_bits(int count) { return count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1; }

/* Note the ends that a block's mask of newlines has. Four are written always, wanted or not: a branch for each one is the dearest part. */
#define NOTE_ALL(mask)                                                                                          \
    {                                                                                                           \
        uint64_t left = mask;                                                                                   \
        const int64_t next = found + __builtin_popcountll(left), origin = base + from + 1;                      \
        for (int turn = 0; turn < 4; turn++, left &= left - 1)                                                  \
            ends[found + turn] = origin + lowest(left | UINT64_C(1) << 63);                                     \
        for (found += 4; left; left &= left - 1) ends[found++] = origin + lowest(left);                         \
        found = next;                                                                                           \
    }

/* What is done when there is no more room: all up to the last end that found some. */
#define STOP                                           \
    {                                                  \
        *consumed = found ? ends[found - 1] - base : 0; \
        return found;                                  \
    }

#define FIND_LINES(mask_of)                                                           \
    uint8_t last[64];                                                                 \
    int64_t found = 0;                                                                \
    for (int64_t from = 0; from < size; from += 64) {                                 \
        int count;                                                                    \
        const uint8_t *block = block_of(data, size, from, last, &count);              \
        uint64_t mask = mask_of(block, '\n');                                         \
        if (capacity - found >= 64) {                                                 \
            NOTE_ALL(mask)                                                            \
            continue;                                                                 \
        }                                                                             \
        for (; mask; mask &= mask - 1) {                                              \
            if (found == capacity) STOP                                               \
            ends[found++] = base + from + lowest(mask) + 1;                           \
        }                                                                             \
    }                                                                                 \
    *consumed = size;                                                                 \
    return found;

static int64_t lines_any(const uint8_t *data, int64_t size, int64_t base, int64_t *ends, int64_t capacity, int64_t *consumed) {
    FIND_LINES(mask_any)
}

#if WITH_X86
AVX2_BITS static int64_t lines_avx2(const uint8_t *data, int64_t size, int64_t base, int64_t *ends, int64_t capacity, int64_t *consumed) {
    FIND_LINES(mask_avx2)
}
#endif

/* ends[i] = base + the place behind the i-th newline of data. Returns how many there are, `capacity` at most.
 * consumed: how many bytes are done: all, or up to the last end that found room. */
API int64_t penstock_find_lines(const uint8_t *data, int64_t size, int64_t base, int64_t *ends, int64_t capacity, int64_t *consumed) {
#if WITH_X86
    if (__builtin_cpu_supports("avx2")) return lines_avx2(data, size, base, ends, capacity, consumed);
#endif
    return lines_any(data, size, base, ends, capacity, consumed);
}

/* A quote opens a quoted field only where a field begins; a doubled one inside stands for itself: it closes the field and opens it again.
 * Not in quotes, the byte before says where we are: it cannot lie inside quotes, unless it is the one that closed them. */
#define FIND_RECORDS(mask_of)                                                                                   \
    uint8_t last[64];                                                                                           \
    int64_t found = 0, closed = *state == BEHIND ? -1 : -2;                                                     \
    const int begins_field = *state == BEFORE;                                                                  \
    int quoted = *state == QUOTED;                                                                              \
    for (int64_t from = 0; from < size; from += 64) {                                                           \
        int count;                                                                                              \
        const uint8_t *block = block_of(data, size, from, last, &count);                                        \
        const uint64_t quotes = mask_of(block, quote) & first_bits(count), newlines = mask_of(block, '\n');     \
        if (!quotes && (quoted || capacity - found >= 64)) {                                                    \
            if (!quoted) NOTE_ALL(newlines)                                                                     \
            continue;                                                                                           \
        }                                                                                                       \
        uint64_t left = quoted ? quotes : quotes | newlines;                                                    \
        while (left) {                                                                                          \
            const int bit = lowest(left);                                                                       \
            const int64_t place = from + bit;                                                                   \
            if (newlines >> bit & 1) {                                                                          \
                if (found == capacity) {                                                                        \
                    if (found) *state = BEFORE;                                                                 \
                    STOP                                                                                        \
                }                                                                                               \
                ends[found++] = base + place + 1;                                                               \
                left &= left - 1;                                                                               \
                continue;                                                                                       \
            }                                                                                                   \
            if (quoted) {                                                                                       \
                quoted = 0;                                                                                     \
                closed = place;                                                                                 \
            } else if (closed == place - 1 ||                                                                   \
                       (place == 0 ? begins_field : data[place - 1] == delimiter || data[place - 1] == '\n')) { \
                quoted = 1;                                                                                     \
            }                                                                                                   \
            left = (quoted ? quotes : quotes | newlines) & ~UINT64_C(0) << bit << 1;                            \
        }                                                                                                       \
    }                                                                                                           \
    if (size > 0)                                                                                               \
        *state = quoted ? QUOTED                                                                                \
                 : closed == size - 1 ? BEHIND                                                                  \
                 : data[size - 1] == delimiter || data[size - 1] == '\n' ? BEFORE : PLAIN;                      \
    *consumed = size;                                                                                           \
    return found;

static int64_t records_any(const uint8_t *data, int64_t size, int64_t base, uint8_t delimiter, uint8_t quote, int64_t *state,
                           int64_t *ends, int64_t capacity, int64_t *consumed) {
    FIND_RECORDS(mask_any)
}

#if WITH_X86
AVX2_BITS static int64_t records_avx2(const uint8_t *data, int64_t size, int64_t base, uint8_t delimiter, uint8_t quote, int64_t *state,
                                 int64_t *ends, int64_t capacity, int64_t *consumed) {
    FIND_RECORDS(mask_avx2)
}
#endif

/* As penstock_find_lines, for CSV: newlines inside quotes end nothing. state: where data begins (BEFORE for a file), and then where the
 * consumed bytes end. delimiter, quote and newline are three different bytes, none of them 0. */
API int64_t penstock_find_records(const uint8_t *data, int64_t size, int64_t base, int delimiter, int quote, int64_t *state, int64_t *ends,
                                  int64_t capacity, int64_t *consumed) {
#if WITH_X86
    if (__builtin_cpu_supports("avx2"))
        return records_avx2(data, size, base, (uint8_t)delimiter, (uint8_t)quote, state, ends, capacity, consumed);
#endif
    return records_any(data, size, base, (uint8_t)delimiter, (uint8_t)quote, state, ends, capacity, consumed);
}

/* spans is [3, num]: file, offset and length of records. Writes to out, [2, num], where each begins and how long it is with the byte before and
 * the one behind it, as far as its file, of `sizes`, has them. */
API void penstock_widen(const int64_t *spans, int64_t num, const int64_t *sizes, int64_t *out) {
    for (int64_t row = 0; row < num; row++) {
        const int64_t offset = spans[num + row], end = offset + spans[2 * num + row];
        out[row] = offset > 0 ? offset - 1 : offset;
        out[num + row] = (end < sizes[spans[row]] ? end + 1 : end) - out[row];
    }
}

/* Looks at these bytes, which were read to `begins` in data: each is to be the separator, or the last of a mark of `mark_size` bytes in front of
 * the first record. Writes to out, [2, num], where each record begins and ends in data. Returns the first row with another byte, or -1. */
API int64_t penstock_check_ends(const uint8_t *data, int64_t size, const int64_t *spans, int64_t num, const int64_t *sizes,
                                const int64_t *begins, int separator, int mark, int64_t mark_size, int64_t *out) {
    int64_t bad = -1;
    for (int64_t row = 0; row < num; row++) {
        const int64_t offset = spans[num + row], length = spans[2 * num + row];
        const int64_t begin = begins[row] + (offset > 0), end = begin + length;
        const int behind = offset + length < sizes[spans[row]];
        int good = begins[row] >= 0 && length >= 0 && end + behind <= size;
        if (good && offset > 0) good = data[begin - 1] == separator || (offset == mark_size && data[begin - 1] == mark);
        if (good && behind) good = data[end] == separator;
        if (!good && bad < 0) bad = row;
        out[row] = begin, out[num + row] = end;
    }
    return bad;
}
