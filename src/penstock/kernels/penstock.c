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
API int penstock_interface(void) { return 7; }

/* ---- windows of tokens -------------------------------------------------------------------------------------------------- */

#define WIDEN(type)                                                                              \
    for (int64_t row = 0; row < num; row++, out += length) {                                     \
        const type *restrict from = (const type *)values + starts[row];                          \
        for (int64_t place = 0; place < length; place++) out[place] = (int64_t)from[place];      \
    }                                                                                            \
    break;

INLINE void widen_rows(const void *values, int kind, const int64_t *starts, int64_t num, int64_t length, int64_t *restrict out) {
    switch (kind) {
        case 1: WIDEN(uint8_t)
        case -1: WIDEN(int8_t)
        case 2: WIDEN(uint16_t)
        case -2: WIDEN(int16_t)
        case 4: WIDEN(uint32_t)
        case -4: WIDEN(int32_t)
        default: WIDEN(int64_t)
    }
}

#if WITH_X86
AVX2 static void widen_rows_avx2(const void *values, int kind, const int64_t *starts, int64_t num, int64_t length, int64_t *restrict out) {
    widen_rows(values, kind, starts, num, length, out);
}
#endif

/* out[i] = values[starts[i] : starts[i] + length] as int64. `kind` is the size in bytes, negative when signed.
 * Returns -1, or the first row that does not lie inside; nothing is written then. */
API int64_t penstock_gather_windows(const void *values, int64_t size, int kind, const int64_t *starts, int64_t num, int64_t length,
                                    int64_t *out) {
    for (int64_t row = 0; row < num; row++)
        if (starts[row] < 0 || starts[row] > size - length) return row;
#if WITH_X86
    if (has_avx2()) {
        widen_rows_avx2(values, kind, starts, num, length, out);
        return -1;
    }
#endif
    widen_rows(values, kind, starts, num, length, out);
    return -1;
}

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
