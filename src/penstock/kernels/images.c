/* Pixels: normalised from any strides, cropped with fill and flip. The twins are in checked.py. */
#include "penstock.h"

/* ---- one row of pixels ---------------------------------------------------------------------------------------------- */

#if WITH_X86
/* Mirror pixels of 3 bytes, 8 at a time: 4 in each half of a register. 4 bytes below them are read, and 8 above written that do not count,
 * so at least 11 pixels must be left: both stay inside the row. Returns how many are done. */
AVX2 static int64_t mirror_3_avx2(const uint8_t *row, int64_t width, uint8_t *out) {
    const __m128i four = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 0, 0, 0, 0);
    const __m256i order = _mm256_broadcastsi128_si256(four), halves = _mm256_setr_epi32(4, 5, 6, 0, 1, 2, 3, 7);
    int64_t column = 0;
    for (; column + 11 <= width; column += 8) {
        const uint8_t *from = row + 3 * (width - 8 - column);
        const __m128i low = _mm_loadu_si128((const __m128i *)(from - 4)), high = _mm_loadu_si128((const __m128i *)(from + 8));
        const __m256i mirrored = _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), order);
        _mm256_storeu_si256((__m256i *)(out + 3 * column), _mm256_permutevar8x32_epi32(mirrored, halves));
    }
    return column;
}

/* The same with one shuffle for 10 pixels; 2 bytes below them are read, and 2 above written that do not count. All of at least 11. */
VBMI static void mirror_3_vbmi(const uint8_t *row, int64_t width, uint8_t *out) {
    const __m256i order = _mm256_setr_epi8(29, 30, 31, 26, 27, 28, 23, 24, 25, 20, 21, 22, 17, 18, 19, 14, 15, 16, 11, 12, 13, 8, 9, 10, 5, 6, 7, 2,
                                           3, 4, 0, 0);
    for (int64_t column = 0; column + 11 <= width; column += 10) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(row + 3 * (width - 10 - column) - 2));
        _mm256_storeu_si256((__m256i *)(out + 3 * column), _mm256_permutexvar_epi8(order, bytes));
    }
    /* The last 10 once more: 16 bytes from their first on, and 16 up to their last. */
    const __m128i upper = _mm_setr_epi8(27, 28, 29, 24, 25, 26, 21, 22, 23, 18, 19, 20, 15, 16, 17, 12);
    const __m128i lower = _mm_setr_epi8(17, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2);
    const __m256i first = _mm256_loadu_si256((const __m256i *)row);
    out += 3 * (width - 10);
    _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(_mm256_permutexvar_epi8(_mm256_castsi128_si256(upper), first)));
    _mm_storeu_si128((__m128i *)(out + 14), _mm256_castsi256_si128(_mm256_permutexvar_epi8(_mm256_castsi128_si256(lower), first)));
}
#endif

INLINE void mirror_any(const uint8_t *row, int64_t width, int64_t bytes, uint8_t *out) {
    for (int64_t column = 0; column < width; column++) memcpy(out + column * bytes, row + (width - 1 - column) * bytes, (size_t)bytes);
}

/* Write a row of pixels of so many bytes, which follow each other, from the last to the first. */
static void mirror_row(const uint8_t *row, int64_t width, int64_t bytes, uint8_t *out) {
    switch (bytes) {
        case 1: mirror_any(row, width, 1, out); return;
        case 3: {
            int64_t done = 0;
#if WITH_X86
            if (width >= 11 && has_vbmi()) {
                mirror_3_vbmi(row, width, out);
                return;
            }
            if (has_avx2()) done = mirror_3_avx2(row, width, out);
#endif
            mirror_any(row, width - done, 3, out + 3 * done);
            return;
        }
        case 4: mirror_any(row, width, 4, out); return;
        case 8: mirror_any(row, width, 8, out); return;
        case 12: mirror_any(row, width, 12, out); return;
        default: mirror_any(row, width, bytes, out);
    }
}

INLINE void pixels(const uint8_t *values, int64_t step, int64_t channel_step, int64_t width, int64_t channels, uint8_t *out) {
    for (int64_t column = 0; column < width; column++)
        for (int64_t channel = 0; channel < channels; channel++)
            out[column * channels + channel] = values[column * step + channel * channel_step];
}

/* Bring the pixels of a row together, from any strides. */
static void gather_row(const uint8_t *values, int64_t step, int64_t channel_step, int64_t width, int64_t channels, uint8_t *out) {
    if (channel_step == 1 && step == -channels) mirror_row(values + step * (width - 1), width, channels, out);
    else if (channel_step == 1 && channels == 3) pixels(values, step, 1, width, 3, out);
    else if (channels == 1) pixels(values, step, 1, width, 1, out);
    else pixels(values, step, channel_step, width, channels, out);
}

typedef struct {
    int64_t length, height, width, channels, image_step, row_step, step, channel_step;
} view;

/* Give dimensions of one element the stride they would have, and see an image whose rows follow each other as one long row. */
static view simple_view(int64_t length, int64_t height, int64_t width, int64_t channels, int64_t image_step, int64_t row_step, int64_t step,
                        int64_t channel_step) {
    view seen = {length, height, width, channels, image_step, row_step, step, channel_step};
    if (channels == 1) seen.channel_step = 1;
    if (width == 1) seen.step = channels;
    if (height == 1 || row_step == seen.step * width) {
        seen.width = width * height;
        seen.height = height != 0;
    }
    return seen;
}

/* ---- normalise ------------------------------------------------------------------------------------------------------ */

/* The pattern of scale and bias over 24 interleaved values: a whole number of pixels for 1 to 4 channels, and of AVX2 registers. */
enum { PATTERN = 24, CHUNK = 4096 };

typedef struct {
    int64_t channels, plane;
    int planar, shuffled; /* shuffled: the masks are set, and rows go by affine_3_planes */
    float scale[PATTERN], bias[PATTERN];
    uint8_t masks[9][16];
} affine;

INLINE void affine_interleaved(const uint8_t *restrict row, int64_t width, const affine *restrict how, float *restrict out) {
    const int64_t size = width * how->channels;
    int64_t from = 0;
    for (; from + PATTERN <= size; from += PATTERN)
        for (int place = 0; place < PATTERN; place++) out[from + place] = (float)row[from + place] * how->scale[place] + how->bias[place];
    for (int place = 0; from + place < size; place++) out[from + place] = (float)row[from + place] * how->scale[place] + how->bias[place];
}

INLINE void affine_planar(const uint8_t *restrict row, int64_t width, int64_t channels, const affine *restrict how, float *restrict out) {
    for (int64_t channel = 0; channel < channels; channel++) {
        const float scale = how->scale[channel], bias = how->bias[channel];
        float *restrict plane = out + channel * how->plane;
        for (int64_t column = 0; column < width; column++) plane[column] = (float)row[column * channels + channel] * scale + bias;
    }
}

INLINE void affine_row(const uint8_t *restrict row, int64_t width, const affine *restrict how, float *restrict out) {
    if (!how->planar || how->channels == 1) affine_interleaved(row, width, how, out);
    else if (how->channels == 3) affine_planar(row, width, 3, how, out);
    else if (how->channels == 4) affine_planar(row, width, 4, how, out);
    else affine_planar(row, width, how->channels, how, out);
}

static void affine_plain(const uint8_t *restrict row, int64_t width, const affine *restrict how, float *restrict out) {
    affine_row(row, width, how, out);
}

#if WITH_X86
AVX2 static void affine_avx2(const uint8_t *restrict row, int64_t width, const affine *restrict how, float *restrict out) {
    affine_row(row, width, how, out);
}

/* 16 pixels of 3 bytes to three planes: three shuffles gather a channel's bytes, then widen, multiply, add. */
AVX2 static inline void affine_16(const uint8_t *row, const __m128i masks[9], const affine *how, float *out) {
    const __m128i part0 = _mm_loadu_si128((const __m128i *)row);
    const __m128i part1 = _mm_loadu_si128((const __m128i *)(row + 16));
    const __m128i part2 = _mm_loadu_si128((const __m128i *)(row + 32));
    for (int channel = 0; channel < 3; channel++) {
        const __m128i *mask = masks + 3 * channel;
        const __m128i bytes = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(part0, mask[0]), _mm_shuffle_epi8(part1, mask[1])),
                                           _mm_shuffle_epi8(part2, mask[2]));
        const __m256 scale = _mm256_set1_ps(how->scale[channel]), bias = _mm256_set1_ps(how->bias[channel]);
        const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
        _mm256_storeu_ps(out + channel * how->plane, _mm256_add_ps(_mm256_mul_ps(low, scale), bias));
        _mm256_storeu_ps(out + channel * how->plane + 8, _mm256_add_ps(_mm256_mul_ps(high, scale), bias));
    }
}

/* Where in 48 bytes of pixels the 16 bytes of each channel lie, for each part of 16 bytes and whichever way pixels and channels run. */
static void set_masks(uint8_t masks[9][16], int reversed, int swapped) {
    memset(masks, 0x80, 9 * 16); /* a byte of another part: zero, so that the three can be or-ed */
    for (int pixel = 0; pixel < 16; pixel++)
        for (int channel = 0; channel < 3; channel++) {
            const int byte = 3 * (reversed ? 15 - pixel : pixel) + (swapped ? 2 - channel : channel);
            masks[3 * channel + byte / 16][pixel] = (uint8_t)(byte % 16);
        }
}

/* A row of at least 16 pixels of 3 bytes to planes; `low` is its lowest address. */
AVX2 static void affine_3_planes(const uint8_t *low, int64_t width, int reversed, const affine *how, float *out) {
    __m128i masks[9];
    for (int place = 0; place < 9; place++) masks[place] = _mm_loadu_si128((const __m128i *)how->masks[place]);
    int64_t column = 0;
    for (; column + 16 <= width; column += 16)
        affine_16(low + 3 * (reversed ? width - 16 - column : column), masks, how, out + column);
    /* The last pixels once more as a full group: it only writes the same numbers again. */
    if (column < width) affine_16(low + 3 * (reversed ? 0 : width - 16), masks, how, out + width - 16);
}
#endif

/* One row of any strides: read in place when contiguous, else brought together in pieces that stay in the first-level cache. */
static void strided_row(const uint8_t *values, const view *seen, const affine *how, float *out) {
    uint8_t chunk[CHUNK];
    const int64_t step = seen->step, channel_step = seen->channel_step, channels = seen->channels, width = seen->width;
    const int contiguous = step == channels && channel_step == 1;
    void (*apply)(const uint8_t *restrict, int64_t, const affine *restrict, float *restrict) = affine_plain;
#if WITH_X86
    if (how->shuffled) {
        const uint8_t *low = values + (step < 0 ? step * (width - 1) : 0) - (channel_step < 0 ? 2 : 0);
        /* Rows read backwards in an order that runs forwards defeat the prefetcher: 13,000 images/s from memory instead of 40,000.
         * A prefetch beyond the last row is harmless. */
        if (step < 0 && seen->height > 1)
            for (int64_t byte = 0; byte < 3 * width; byte += 64)
                __builtin_prefetch((const void *)((uintptr_t)low + (uintptr_t)(2 * seen->row_step + byte)));
        affine_3_planes(low, width, step < 0, how, out);
        return;
    }
    if (has_avx2()) apply = affine_avx2;
#endif
    if (contiguous) {
        apply(values, width, how, out);
        return;
    }
    const int64_t room = CHUNK / channels, apart = how->planar ? 1 : channels;
    for (int64_t column = 0; column < width; column += room) {
        const int64_t count = width - column < room ? width - column : room;
        gather_row(values + column * step, step, channel_step, count, channels, chunk);
        apply(chunk, count, how, out + column * apart);
    }
}

/* out = values * scale + bias as float32; channels in 1..4; out is (n, c, h, w) when channels_first, else (n, h, w, c). */
API void penstock_normalize(const uint8_t *values, int64_t length, int64_t height, int64_t width, int64_t channels, int64_t image_step,
                            int64_t row_step, int64_t step, int64_t channel_step, const float *scale, const float *bias, float *out,
                            int channels_first) {
    const view seen = simple_view(length, height, width, channels, image_step, row_step, step, channel_step);
    affine how = {.channels = channels, .plane = height * width, .planar = channels_first};
    for (int place = 0; place < PATTERN; place++) {
        how.scale[place] = scale[place % channels];
        how.bias[place] = bias[place % channels];
    }
#if WITH_X86
    if (channels_first && channels == 3 && seen.width >= 16 && (seen.step == 3 || seen.step == -3) &&
        (seen.channel_step == 1 || seen.channel_step == -1) && has_avx2()) {
        how.shuffled = 1;
        set_masks(how.masks, seen.step < 0, seen.channel_step < 0);
    }
#endif
    const int64_t image_size = height * width * channels, row_size = seen.width * (channels_first ? 1 : channels);
    for (int64_t image = 0; image < seen.length; image++)
        for (int64_t row = 0; row < seen.height; row++)
            strided_row(values + image * seen.image_step + row * seen.row_step, &seen, &how, out + image * image_size + row * row_size);
}

/* ---- windows, mirrored or not ----------------------------------------------------------------------------------------- */

static int64_t clamp(int64_t value, int64_t low, int64_t high) { return value < low ? low : value > high ? high : value; }

/* What is the same for all images of one layout. The pixels of a row follow each other, `bytes` for each; rows are `row_step` apart. */
typedef struct {
    int64_t height, width, bytes, row_step, rows, columns, flip, fill;
} cropping;

/* out = the rows x columns window of one image at (top, left), `fill` where it lies outside, mirrored where `flip`. */
API void penstock_crop_image(const cropping *how, const uint8_t *values, int64_t top, int64_t left, uint8_t *out) {
    const int64_t height = how->height, width = how->width, bytes = how->bytes, row_step = how->row_step, rows = how->rows, columns = how->columns;
    const int flip = how->flip != 0, fill = (int)how->fill;
    const int64_t row_bytes = columns * bytes;
    /* Clamped first: what lies wholly outside stays outside, and no sum below can overflow. */
    top = clamp(top, -rows, height), left = clamp(left, -columns, width);
    const int64_t before = left < 0 ? -left : 0, behind = clamp(width - left, 0, columns), inside = behind - before;
    const int64_t above = inside > 0 ? clamp(-top, 0, rows) : rows, below = inside > 0 ? clamp(height - top, above, rows) : rows;
    const int64_t first = flip ? columns - behind : before;
    memset(out, fill, (size_t)(above * row_bytes));
    const uint8_t *from = values + (top + above) * row_step + (left + before) * bytes;
    out += above * row_bytes;
    if (!flip && inside == columns && row_step == row_bytes) {
        memcpy(out, from, (size_t)((below - above) * row_bytes));
        out += (below - above) * row_bytes;
    } else {
        for (int64_t row = above; row < below; row++, from += row_step, out += row_bytes) {
            if (first > 0) memset(out, fill, (size_t)(first * bytes)); /* the test is faster than a call for nothing */
            if (flip) mirror_row(from, inside, bytes, out + first * bytes);
            else memcpy(out + first * bytes, from, (size_t)(inside * bytes));
            if (first + inside < columns) memset(out + (first + inside) * bytes, fill, (size_t)((columns - first - inside) * bytes));
        }
    }
    memset(out, fill, (size_t)((rows - below) * row_bytes));
}

/* The same for images that lie one behind the other, each with its own window. */
API void penstock_crop_images(const uint8_t *values, int64_t length, int64_t height, int64_t width, int64_t channels, const int64_t *tops,
                              const int64_t *lefts, const uint8_t *flips, int fill, int64_t rows, int64_t columns, uint8_t *out) {
    cropping how = {height, width, channels, width * channels, rows, columns, 0, fill};
    for (int64_t image = 0; image < length; image++, values += height * width * channels, out += rows * columns * channels) {
        how.flip = flips[image];
        penstock_crop_image(&how, values, tops[image], lefts[image], out);
    }
}

/* Write images that lie one behind the other, each to a place of its own, mirrored where flips[i]; normalised unless `scale` is NULL. */
API void penstock_write_images(const uint8_t *values, int64_t length, int64_t height, int64_t width, int64_t channels, const uint8_t *flips,
                               const float *scale, const float *bias, int channels_first, const int64_t *outs) {
    const int64_t row_step = width * channels;
    cropping how = {height, width, channels, row_step, height, width, 0, 0};
    for (int64_t image = 0; image < length; image++, values += height * row_step) {
        void *out = (void *)(uintptr_t)outs[image];
        how.flip = flips[image];
        const int64_t step = how.flip ? -channels : channels;
        const uint8_t *from = how.flip ? values + row_step - channels : values;
        if (scale == NULL) penstock_crop_image(&how, values, 0, 0, out);
        else penstock_normalize(from, 1, height, width, channels, 0, row_step, step, 1, scale, bias, out, channels_first);
    }
}
