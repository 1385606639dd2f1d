/* Pixels: copied from any strides, normalised, cropped with fill and flip. The twins are in checked.py. */
#include "penstock.h"

/* ---- one row of pixels, from any strides to contiguous -------------------------------------------------------------- */

#if WITH_X86
/* From which of 16 bytes the bytes of 5 pixels come: in order or reversed, and with the channels as they are or swapped. */
static const uint8_t ORDERS[2][2][16] = {
    {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0},
     {2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9, 14, 13, 12, 0}},
    {{13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0},
     {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
};

/* Copy pixels of 3 bytes, in reverse order and/or with their channels swapped, 5 at a time. `low` is the lowest address of the row.
 * 16 bytes are read and written for 15 that count, so at least 6 pixels must be left: both stay inside the row. */
AVX2 static int64_t shuffle3(const uint8_t *low, int64_t width, int reversed, int swapped, uint8_t *out) {
    const __m128i mask = _mm_loadu_si128((const __m128i *)ORDERS[reversed][swapped]);
    int64_t column = 0;
    for (; column + 6 <= width; column += 5) {
        const uint8_t *from = reversed ? low + 3 * (width - 5 - column) - 1 : low + 3 * column;
        _mm_storeu_si128((__m128i *)(out + 3 * column), _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)from), mask));
    }
    return column;
}
#endif

INLINE void pixels(const uint8_t *values, int64_t step, int64_t channel_step, int64_t width, int64_t channels, uint8_t *out) {
    for (int64_t column = 0; column < width; column++)
        for (int64_t channel = 0; channel < channels; channel++)
            out[column * channels + channel] = values[column * step + channel * channel_step];
}

static void copy_row(const uint8_t *values, int64_t step, int64_t channel_step, int64_t width, int64_t channels, uint8_t *out) {
    if (width <= 0 || channels <= 0) return;
    if (step == channels && channel_step == 1) {
        memcpy(out, values, (size_t)(width * channels));
        return;
    }
    int64_t done = 0;
#if WITH_X86
    if (channels == 3 && (step == 3 || step == -3) && (channel_step == 1 || channel_step == -1) && width >= 6 && has_avx2()) {
        const uint8_t *low = values + (step < 0 ? step * (width - 1) : 0) - (channel_step < 0 ? 2 : 0);
        done = shuffle3(low, width, step < 0, channel_step < 0, out);
    }
#endif
    values += done * step;
    out += done * channels;
    width -= done;
    switch (channel_step == 1 ? channels : 0) {
        case 1: if (step == -1) pixels(values, -1, 1, width, 1, out); else pixels(values, step, 1, width, 1, out); break;
        case 2: pixels(values, step, 1, width, 2, out); break;
        case 3: pixels(values, step, 1, width, 3, out); break;
        case 4: if (step == -4) pixels(values, -4, 1, width, 4, out); else pixels(values, step, 1, width, 4, out); break;
        default: pixels(values, step, channel_step, width, channels, out);
    }
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

/* Copy images of any strides into one contiguous block. */
API void penstock_copy_images(const uint8_t *values, int64_t length, int64_t height, int64_t width, int64_t channels, int64_t image_step,
                              int64_t row_step, int64_t step, int64_t channel_step, uint8_t *out) {
    const view seen = simple_view(length, height, width, channels, image_step, row_step, step, channel_step);
    const int64_t row_bytes = seen.width * seen.channels;
    for (int64_t image = 0; image < seen.length; image++)
        for (int64_t row = 0; row < seen.height; row++, out += row_bytes)
            copy_row(values + image * seen.image_step + row * seen.row_step, seen.step, seen.channel_step, seen.width, seen.channels, out);
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
        copy_row(values + column * step, step, channel_step, count, channels, chunk);
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

/* Write images that lie one behind the other, each to a place of its own, mirrored where flips[i]; normalised unless `scale` is NULL. */
API void penstock_write_images(const uint8_t *values, int64_t length, int64_t height, int64_t width, int64_t channels, const uint8_t *flips,
                               const float *scale, const float *bias, int channels_first, const int64_t *outs) {
    for (int64_t image = 0; image < length; image++, values += height * width * channels) {
        const int64_t step = flips[image] ? -channels : channels;
        const uint8_t *from = flips[image] ? values + (width - 1) * channels : values;
        if (scale == NULL) penstock_copy_images(from, 1, height, width, channels, 0, width * channels, step, 1, (uint8_t *)(uintptr_t)outs[image]);
        else penstock_normalize(from, 1, height, width, channels, 0, width * channels, step, 1, scale, bias, (float *)(uintptr_t)outs[image],
                                channels_first);
    }
}

/* ---- crop with fill and flip ------------------------------------------------------------------------------------------ */

static int64_t clamp(int64_t value, int64_t low, int64_t high) { return value < low ? low : value > high ? high : value; }

/* out[i] = the rows x columns window of values[i] at (tops[i], lefts[i]), `fill` where it lies outside, mirrored where flips[i]. */
API void penstock_crop_images(const uint8_t *values, int64_t length, int64_t height, int64_t width, int64_t channels, const int64_t *tops,
                              const int64_t *lefts, const uint8_t *flips, int fill, int64_t rows, int64_t columns, uint8_t *out) {
    const int64_t row_bytes = columns * channels;
    for (int64_t image = 0; image < length; image++, values += height * width * channels) {
        /* Clamped first: what lies wholly outside stays outside, and no sum below can overflow. */
        const int64_t top = clamp(tops[image], -rows, height), left = clamp(lefts[image], -columns, width);
        const int64_t before = left < 0 ? -left : 0, behind = clamp(width - left, 0, columns), inside = behind - before;
        const int flip = flips[image] != 0;
        const int64_t first = flip ? columns - behind : before;
        for (int64_t row = 0; row < rows; row++, out += row_bytes) {
            const int64_t source = top + row;
            if (source < 0 || source >= height || inside <= 0) {
                memset(out, fill, (size_t)row_bytes);
                continue;
            }
            const uint8_t *from = values + (source * width + left + before) * channels;
            if (first > 0) memset(out, fill, (size_t)(first * channels));
            if (flip) copy_row(from + (inside - 1) * channels, -channels, 1, inside, channels, out + first * channels);
            else memcpy(out + first * channels, from, (size_t)(inside * channels));
            if (first + inside < columns) memset(out + (first + inside) * channels, fill, (size_t)((columns - first - inside) * channels));
        }
    }
}
