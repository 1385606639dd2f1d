/* The hot loops of Penstock: plain C11, no Python.h, no state, no allocation. Called through ctypes; library.py has the table of signatures.
 *
 * Every function has a twin in NumPy or Python that gives the same bytes, so floating point is kept to single rounded
 * operations: build with -ffp-contract=off. The Python side has checked shapes, dtypes, layout and bounds; what it cannot
 * check cheaply (each position, each start) is checked here before it is used.
 *
 * Where the compiler is GCC or Clang for x86-64 the loops that matter are also compiled for AVX2 or AVX-512 and picked at run time.
 */
#include "penstock.h"

/* Raised with every change of an argument list; library.py refuses another number. */
API int penstock_interface(void) { return 12; }

/* ---- files ------------------------------------------------------------------------------------------------------------------ */

/* Read all of a regular file into buffer: open, fstat, read and close without taking the GIL back in between.
 *
 * Returns the number of bytes; -2 - size when buffer cannot hold size + 1 bytes; -1 for everything out of the ordinary (it cannot be
 * opened, is no regular file, has another length than it says, is empty): the caller reads it again the slow way and finds out what it is.
 * O_NONBLOCK: a FIFO without a writer must not block. */
API int64_t penstock_read_file(const char *path, unsigned char *buffer, int64_t capacity) {
#if defined(_WIN32)
    (void)path, (void)buffer, (void)capacity;
    return -1;
#else
    struct stat status;
    int64_t size, done = -1;
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) return -1;
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        size = (int64_t)status.st_size;
        if (size >= capacity) {
            done = -2 - size;
        } else {
            /* One byte more than the size: a read that comes back short has seen the end. */
            const ssize_t count = read(descriptor, buffer, (size_t)size + 1);
            if (count == size) done = size;
        }
    }
    close(descriptor);
    return done;
#endif
}

/* Read whole files one behind the other, until one does not fit or is out of the ordinary, or `most_ns` have passed: then the next may wait.
 *
 * paths: a 0 behind each. at: the number of the file that is being read; other threads look at it. ends: where each ends.
 * Returns how many were read. */
API int64_t penstock_read_files(const char *paths, int64_t num, unsigned char *buffer, int64_t capacity, int64_t most_ns, int64_t *ends,
                                volatile int64_t *at) {
    int64_t count = 0;
#if !defined(_WIN32)
    struct timespec begin, now;
    int64_t used = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (count < num) {
        *at = count;
        const int64_t size = penstock_read_file(paths, buffer + used, capacity - used);
        if (size < 0) break;
        ends[count++] = used += size;
        paths += strlen(paths) + 1;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((int64_t)(now.tv_sec - begin.tv_sec) * 1000000000 + (int64_t)(now.tv_nsec - begin.tv_nsec) >= most_ns) break;
    }
#else
    (void)paths, (void)num, (void)buffer, (void)capacity, (void)most_ns, (void)ends, (void)at;
#endif
    return count;
}

/* ---- windows of tokens read from files straight into the rows of a batch, and widened to int64 ----
 *
 * pread and not a memory map: a file that is cut underfoot gives a short read, not SIGBUS. What is read passes through a piece on the
 * stack that stays in the first-level cache, so that no working memory is needed and each byte of a file is touched once.
 */
enum { PIECE = 32768, SHORT = 1, FAILED = 2, OUTSIDE = 3 };

/* Widen num tokens; return -1, or the first one that is not in 0..bound-1 (bound 0: all are fine). `most`: the largest of the type. */
#define WIDEN(name, type, unsigned_type, most)                                                              \
    INLINE int64_t name(const void *piece, int64_t num, uint64_t bound, int64_t *restrict out) {            \
        const type *restrict from = (const type *)piece;                                                    \
        for (int64_t place = 0; place < num; place++) out[place] = (int64_t)from[place];                    \
        if (bound == 0) return -1;                                                                          \
        /* Seen as unsigned a negative token is a huge one, above all that its type can hold. */            \
        const unsigned_type limit = bound > (uint64_t)(most) ? (most) : (unsigned_type)(bound - 1);         \
        unsigned_type bad = 0;                                                                              \
        for (int64_t place = 0; place < num; place++) bad |= (unsigned_type)from[place] > limit;            \
        if (bad)                                                                                            \
            for (int64_t place = 0; place < num; place++)                                                   \
                if ((unsigned_type)from[place] > limit) return place;                                       \
        return -1;                                                                                          \
    }

WIDEN(widen_u1, uint8_t, uint8_t, UINT8_MAX)
WIDEN(widen_i1, int8_t, uint8_t, INT8_MAX)
WIDEN(widen_u2, uint16_t, uint16_t, UINT16_MAX)
WIDEN(widen_i2, int16_t, uint16_t, INT16_MAX)
WIDEN(widen_u4, uint32_t, uint32_t, UINT32_MAX)
WIDEN(widen_i4, int32_t, uint32_t, INT32_MAX)
WIDEN(widen_u8, uint64_t, uint64_t, UINT64_MAX)
WIDEN(widen_i8, int64_t, uint64_t, INT64_MAX)

INLINE int64_t widen_any(const void *piece, int kind, int64_t num, uint64_t bound, int64_t *restrict out) {
    switch (kind) {
        case 1: return widen_u1(piece, num, bound, out);
        case -1: return widen_i1(piece, num, bound, out);
        case 2: return widen_u2(piece, num, bound, out);
        case -2: return widen_i2(piece, num, bound, out);
        case 4: return widen_u4(piece, num, bound, out);
        case -4: return widen_i4(piece, num, bound, out);
        case 8: return widen_u8(piece, num, bound, out);
        default: return widen_i8(piece, num, bound, out);
    }
}

#if !defined(_WIN32)
static int64_t widen_plain(const void *piece, int kind, int64_t num, uint64_t bound, int64_t *restrict out) {
    return widen_any(piece, kind, num, bound, out);
}

#if WITH_X86
AVX2 static int64_t widen_avx2(const void *piece, int kind, int64_t num, uint64_t bound, int64_t *restrict out) {
    return widen_any(piece, kind, num, bound, out);
}
#endif

/* Read exactly `size` bytes; return how many there were, or -1 - errno. */
static int64_t read_piece(int descriptor, unsigned char *piece, int64_t size, int64_t offset) {
    int64_t done = 0;
    while (done < size) {
        const ssize_t count = pread(descriptor, piece + done, (size_t)(size - done), (off_t)(offset + done));
        if (count == 0) break;
        if (count > 0) done += count;
        else if (errno != EINTR) return -1 - (int64_t)errno;
    }
    return done;
}
#endif

/* out[row] = `length` tokens from byte offsets[row] of descriptors[row] on. `kind` is the size of a token in bytes, negative when signed;
 * tokens are in the byte order of this machine. bound: 0, or every token must lie in 0..bound-1.
 *
 * Returns -1, or the first row that could not be read, and why in report: {SHORT, bytes of the row that are there}, {FAILED, errno} or
 * {OUTSIDE, place of the token in its row}. Rows before it are complete. */
API int64_t penstock_read_windows(const int *descriptors, const int64_t *offsets, int64_t num, int64_t length, int kind, uint64_t bound,
                                  int64_t *out, int64_t *report) {
#if defined(_WIN32)
    (void)descriptors, (void)offsets, (void)length, (void)kind, (void)bound, (void)out;
    report[0] = FAILED, report[1] = 0;
    return num > 0 ? 0 : -1;
#else
    unsigned char piece[PIECE] __attribute__((aligned(64)));
    const int64_t token_bytes = kind < 0 ? -kind : kind, per_piece = PIECE / token_bytes;
    int64_t (*widen)(const void *, int, int64_t, uint64_t, int64_t *restrict) = widen_plain;
#if WITH_X86
    if (__builtin_cpu_supports("avx2")) widen = widen_avx2;
#endif
    for (int64_t row = 0; row < num; row++, out += length) {
        int64_t outside = -1;
        for (int64_t done = 0; done < length; done += per_piece) {
            const int64_t count = length - done < per_piece ? length - done : per_piece, size = count * token_bytes;
            const int64_t got = read_piece(descriptors[row], piece, size, offsets[row] + done * token_bytes);
            if (got != size) {
                report[0] = got < 0 ? FAILED : SHORT;
                report[1] = got < 0 ? -1 - got : done * token_bytes + got;
                return row;
            }
            const int64_t bad = widen(piece, kind, count, bound, out + done);
            if (bad >= 0 && outside < 0) outside = done + bad;
        }
        if (outside >= 0) {
            report[0] = OUTSIDE, report[1] = outside;
            return row;
        }
    }
    return -1;
#endif
}
