/* Pictures in another size, by filters that are given as weights. The twin is in resampling.py.
 *
 * First along the rows and then along the columns, as Pillow does. A row of the result needs `taps` rows that the first pass has made: these
 * are kept in a ring, so that the second pass finds them in the first-level cache, and each is made once.
 * uint8: whole numbers, and each pass rounds to 8 bits. All others: float64 throughout.
 */
#include "penstock.h"

/* The numbers are the places in DTYPES of resampling.py. */
enum { UINT8, BOOL, UINT16, INT16, INT32, FLOAT32, FLOAT64 };

/* Each of `size` places of the result is the sum of `taps` places from starts[i] on, times the weights from i * stride on.
 *
 * For uint8 a weight has `shift` digits behind the binary point, and 16 bits. Those of columns may have FINE digits and two parts, which
 * follow each other: `stride` numbers with the upper bits, and `stride` with the lower 8, from -128 to 127. */
typedef struct {
    int64_t size, taps, stride, shift;
    const int64_t *starts;
    const void *weights;
} way;

enum {
    FINE = 22,  /* Pillow's */
    SPARE = 32, /* bytes that may be read beyond the end of a row that was copied, and written beyond that of one in the ring */
    ROWS = 4,   /* so many go along together, for one look at the weights */
};

INLINE uint8_t level(int32_t sum, int64_t shift) {
    sum >>= shift;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* ---- uint8 ---------------------------------------------------------------------------------------------------------- */

INLINE void along_any(const uint8_t *line, int64_t channels, const way *to, uint8_t *out) {
    const int fine = to->shift == FINE;
    const int16_t *weights = to->weights;
    for (int64_t place = 0; place < to->size; place++, weights += to->stride << fine, out += channels) {
        const uint8_t *from = line + to->starts[place] * channels;
        for (int64_t channel = 0; channel < channels; channel++) {
            int32_t sum = 1 << (to->shift - 1);
            for (int64_t tap = 0; tap < to->taps; tap++)
                sum += (fine ? weights[tap] * 256 + weights[to->stride + tap] : weights[tap]) * from[tap * channels + channel];
            out[channel] = level(sum, to->shift);
        }
    }
}

static void along_plain(const uint8_t *const *lines, int64_t channels, const way *to, uint8_t *const *outs) {
    for (int row = 0; row < ROWS; row++) {
        if (channels == 1) along_any(lines[row], 1, to, outs[row]);
        else if (channels == 3) along_any(lines[row], 3, to, outs[row]);
        else along_any(lines[row], channels, to, outs[row]);
    }
}

/* lines: `taps` rows, and one more for an odd number, whose weight is 0. */
INLINE void across_any(const uint8_t *const *lines, const int16_t *weights, const way *to, int64_t size, uint8_t *out) {
    enum { PIECE = 512 };
    int32_t sums[PIECE];
    for (int64_t from = 0; from < size; from += PIECE) {
        const int64_t count = size - from < PIECE ? size - from : PIECE;
        for (int64_t place = 0; place < count; place++) sums[place] = 1 << (to->shift - 1);
        for (int64_t tap = 0; tap < to->taps; tap++)
            for (int64_t place = 0; place < count; place++) sums[place] += weights[tap] * lines[tap][from + place];
        for (int64_t place = 0; place < count; place++) out[from + place] = level(sums[place], to->shift);
    }
}

static void across_plain(const uint8_t *const *lines, const int16_t *weights, const way *to, int64_t size, uint8_t *out) {
    across_any(lines, weights, to, size, out);
}

#if WITH_X86
AVX2 INLINE __m256i joined(__m256i one, __m256i other) {
    return _mm256_add_epi32(_mm256_permute2x128_si256(one, other, 0x20), _mm256_permute2x128_si256(one, other, 0x31));
}

/* Four rows of pixels of up to 4 channels. A register has 4 taps of one row: pairs of 16 bits, of taps 0 and 1 in the lower half, of 2 and 3
 * in the upper one, one pair for each channel. */
AVX2 INLINE void along_4(const uint8_t *const *lines, int64_t channels, const way *to, int64_t taps, int fine, uint8_t *const *outs) {
    uint8_t mask[32], order[32];
    memset(mask, 0x80, 32);
    for (int64_t tap = 0; tap < 4; tap++)
        for (int64_t channel = 0; channel < channels; channel++)
            mask[tap / 2 * 16 + 4 * channel + tap % 2 * 2] = (uint8_t)(tap * channels + channel);
    for (int byte = 0; byte < 32; byte++) order[byte] = (uint8_t)(byte / 16 * 4 + byte % 4);
    const __m256i pairs = _mm256_loadu_si256((const __m256i *)mask), spread = _mm256_loadu_si256((const __m256i *)order);
    const __m256i half = _mm256_set1_epi32(1 << (to->shift - 1));
    const __m128i shift = _mm_cvtsi64_si128(to->shift);
    const int16_t *weights = to->weights;
    for (int64_t place = 0; place < to->size; place++, weights += to->stride << fine) {
        const int64_t from = to->starts[place] * channels;
        __m256i upper[ROWS], lower[ROWS];
        for (int row = 0; row < ROWS; row++) upper[row] = lower[row] = _mm256_setzero_si256();
        for (int64_t tap = 0; tap < taps; tap += 4) {
            const __m256i high = _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(weights + tap))), spread);
            const __m128i rest = fine ? _mm_loadl_epi64((const __m128i *)(weights + to->stride + tap)) : _mm_setzero_si128();
            const __m256i low = _mm256_shuffle_epi8(_mm256_broadcastq_epi64(rest), spread);
            for (int row = 0; row < ROWS; row++) {
                const __m128i pixels = _mm_loadu_si128((const __m128i *)(lines[row] + from + tap * channels));
                const __m256i values = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(pixels), pairs);
                upper[row] = _mm256_add_epi32(upper[row], _mm256_madd_epi16(values, high));
                if (fine) lower[row] = _mm256_add_epi32(lower[row], _mm256_madd_epi16(values, low));
            }
        }
        __m256i sums[2];
        for (int two = 0; two < 2; two++) {
            sums[two] = joined(upper[two], upper[two + 2]);
            if (fine) sums[two] = _mm256_add_epi32(_mm256_slli_epi32(sums[two], 8), joined(lower[two], lower[two + 2]));
            sums[two] = _mm256_sra_epi32(_mm256_add_epi32(sums[two], half), shift);
        }
        const __m256i words = _mm256_packs_epi32(sums[0], sums[1]), levels = _mm256_packus_epi16(words, words); /* rows 0, 1 and 2, 3 */
        const int64_t first = _mm_cvtsi128_si64(_mm256_castsi256_si128(levels)), second = _mm_cvtsi128_si64(_mm256_extracti128_si256(levels, 1));
        for (int row = 0; row < ROWS; row++) {
            const int32_t pixel = (int32_t)((row < 2 ? first : second) >> row % 2 * 32);
            memcpy(outs[row] + place * channels, &pixel, 4); /* beyond a pixel of less than 4 channels goes the next one, or nothing counts */
        }
    }
}

AVX2 static void along_avx2(const uint8_t *const *lines, int64_t channels, const way *to, uint8_t *const *outs) {
    if (channels > 4) along_plain(lines, channels, to, outs);
    else if (to->shift == FINE) along_4(lines, channels, to, to->taps, 1, outs);
    else if (channels == 3 && to->taps <= 4) along_4(lines, 3, to, 4, 0, outs);
    else along_4(lines, channels, to, to->taps, 0, outs);
}

AVX2 static inline void across_32(const uint8_t *const *lines, const int16_t *weights, const way *to, int64_t at, uint8_t *out) {
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(1 << (to->shift - 1));
    const __m128i shift = _mm_cvtsi64_si128(to->shift);
    __m256i sums[4] = {half, half, half, half};
    for (int64_t tap = 0; tap < to->taps; tap += 2) {
        const __m256i one = _mm256_loadu_si256((const __m256i *)(lines[tap] + at)), other = _mm256_loadu_si256((const __m256i *)(lines[tap + 1] + at));
        const __m256i left = _mm256_unpacklo_epi8(one, other), right = _mm256_unpackhi_epi8(one, other);
        int32_t both;
        memcpy(&both, weights + tap, 4);
        const __m256i pair = _mm256_set1_epi32(both);
        sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(left, zero), pair));
        sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(left, zero), pair));
        sums[2] = _mm256_add_epi32(sums[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(right, zero), pair));
        sums[3] = _mm256_add_epi32(sums[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(right, zero), pair));
    }
    for (int part = 0; part < 4; part++) sums[part] = _mm256_sra_epi32(sums[part], shift);
    const __m256i left = _mm256_packs_epi32(sums[0], sums[1]), right = _mm256_packs_epi32(sums[2], sums[3]);
    _mm256_storeu_si256((__m256i *)(out + at), _mm256_packus_epi16(left, right));
}

AVX2 static void across_avx2(const uint8_t *const *lines, const int16_t *weights, const way *to, int64_t size, uint8_t *out) {
    if (size < 32) {
        across_any(lines, weights, to, size, out);
        return;
    }
    for (int64_t at = 0; at + 32 <= size; at += 32) across_32(lines, weights, to, at, out);
    across_32(lines, weights, to, size - 32, out); /* the last ones once more as a full group */
}
#endif

static void resample_8(const uint8_t *values, int64_t height, int64_t width, int64_t channels, int64_t row_step, const way *down,
                       const way *right, const uint8_t **lines, uint8_t *copies, uint8_t *out) {
    void (*along)(const uint8_t *const *, int64_t, const way *, uint8_t *const *) = along_plain;
    void (*across)(const uint8_t *const *, const int16_t *, const way *, int64_t, uint8_t *) = across_plain;
#if WITH_X86
    if (has_avx2()) along = along_avx2, across = across_avx2;
#endif
    const int64_t size = right->size * channels, step = size + SPARE, bytes = width * channels, count = down->taps + ROWS - 1;
    const int64_t last = down->starts[down->size - 1] + down->taps - 1;
    uint8_t *ring = copies + ROWS * (bytes + SPARE);
    int64_t done = 0;
    for (int64_t row = 0; row < down->size; row++, out += size) {
        const int64_t start = down->starts[row];
        for (done = done < start ? start : done; done < start + down->taps; done += ROWS) {
            const uint8_t *from[ROWS];
            uint8_t *to[ROWS];
            for (int64_t number = 0; number < ROWS; number++) {
                const int64_t line = done + number < last ? done + number : last;
                to[number] = ring + line % count * step;
                from[number] = values + line * row_step;
                if (row_step < bytes || bytes < SPARE || line == height - 1) /* what is read beyond its end might not be ours */
                    from[number] = memcpy(copies + number * (bytes + SPARE), from[number], (size_t)bytes);
            }
            along(from, channels, right, to);
        }
        for (int64_t tap = 0; tap < down->taps; tap++) lines[tap] = ring + (start + tap) % count * step;
        lines[down->taps] = lines[0];
        across(lines, (const int16_t *)down->weights + row * down->stride, down, size, out);
    }
}

/* ---- all others ----------------------------------------------------------------------------------------------------- */

#define WIDEN(type)                                                                      \
    for (int64_t place = 0; place < count; place++) out[place] = ((const type *)from)[place]

static void widen(const void *from, int64_t count, int kind, double *out) {
    switch (kind) {
        case BOOL: WIDEN(uint8_t); break;
        case UINT16: WIDEN(uint16_t); break;
        case INT16: WIDEN(int16_t); break;
        case INT32: WIDEN(int32_t); break;
        case FLOAT32: WIDEN(float); break;
        default: WIDEN(double);
    }
}

INLINE double whole(double value, double low, double high) {
    value += value < 0 ? -0.5 : 0.5; /* and then the fraction is cut off */
    return value < low ? low : value > high ? high : value;
}

#define NARROW(type, low, high)                                                          \
    for (int64_t place = 0; place < count; place++) ((type *)out)[place] = (type)whole(from[place], low, high)

static void narrow(const double *from, int64_t count, int kind, void *out) {
    switch (kind) {
        case BOOL: NARROW(uint8_t, 0, 1); break;
        case UINT16: NARROW(uint16_t, 0, UINT16_MAX); break;
        case INT16: NARROW(int16_t, INT16_MIN, INT16_MAX); break;
        case INT32: NARROW(int32_t, INT32_MIN, INT32_MAX); break;
        case FLOAT32:
            for (int64_t place = 0; place < count; place++) ((float *)out)[place] = (float)from[place];
            break;
        default: memcpy(out, from, (size_t)count * sizeof(double));
    }
}

INLINE void along_wide(const double *line, int64_t channels, const way *to, double *out) {
    const double *weights = to->weights;
    for (int64_t place = 0; place < to->size; place++, weights += to->stride, out += channels) {
        const double *from = line + to->starts[place] * channels;
        for (int64_t channel = 0; channel < channels; channel++) {
            double sum = 0;
            for (int64_t tap = 0; tap < to->taps; tap++)
                if (weights[tap] != 0) sum += weights[tap] * from[tap * channels + channel]; /* 0 times NaN would be NaN */
            out[channel] = sum;
        }
    }
}

static void resample_wide(const uint8_t *values, int64_t width, int64_t channels, int64_t row_step, int kind, const way *down, const way *right,
                          double *line, double *ring, uint8_t *out, int64_t bytes) {
    const int64_t size = right->size * channels;
    double *sums = ring + down->taps * size;
    int64_t done = 0;
    for (int64_t row = 0; row < down->size; row++, out += size * bytes) {
        const int64_t start = down->starts[row], end = start + down->taps;
        for (done = done < start ? start : done; done < end; done++) {
            widen(values + done * row_step, width * channels, kind, line);
            double *made = ring + done % down->taps * size;
            if (channels == 1) along_wide(line, 1, right, made);
            else if (channels == 3) along_wide(line, 3, right, made);
            else along_wide(line, channels, right, made);
        }
        memset(sums, 0, (size_t)size * sizeof(double));
        for (int64_t tap = 0; tap < down->taps; tap++) {
            const double weight = ((const double *)down->weights)[row * down->stride + tap], *from = ring + (start + tap) % down->taps * size;
            if (weight == 0) continue;
            for (int64_t place = 0; place < size; place++) sums[place] += weight * from[place];
        }
        narrow(sums, size, kind, out);
    }
}

/* Write a picture of another size. Its rows may lie anywhere, the pixels of a row follow each other; `out` is one block.
 *
 * work: aligned for pointers and doubles. starts grow, and starts[i] + taps is at most the size of the picture. */
API void penstock_resample(const uint8_t *values, int64_t height, int64_t width, int64_t channels, int64_t row_step, int kind, int64_t item_bytes, int64_t rows,
                           int64_t row_taps, int64_t row_stride, int64_t row_shift, const int64_t *row_starts, const void *row_weights,
                           int64_t columns, int64_t column_taps, int64_t column_stride, int64_t column_shift, const int64_t *column_starts,
                           const void *column_weights, uint8_t *work, uint8_t *out) {
    const way down = {rows, row_taps, row_stride, row_shift, row_starts, row_weights};
    const way right = {columns, column_taps, column_stride, column_shift, column_starts, column_weights};
    if (kind == UINT8) {
        uint8_t *copies = work + (row_taps + 1) * (int64_t)sizeof(uint8_t *);
        resample_8(values, height, width, channels, row_step, &down, &right, (const uint8_t **)work, copies, out);
    } else {
        double *line = (double *)work;
        resample_wide(values, width, channels, row_step, kind, &down, &right, line, line + width * channels, out, item_bytes);
    }
}
