/* What the C files of the kernels share: plain C11, no Python.h, no state, no allocation.
 *
 * One file for each family of loops; all are linked into one library. Every function has a NumPy twin that gives the same bytes. The Python
 * side has checked shapes, dtypes, layout and bounds; what it cannot check cheaply is checked in C before it is used.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#endif

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline, unused))
#if defined(_WIN32)
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif
#else
#define INLINE static inline
#define API
#endif

/* 0: plain C, 1: up to AVX2, 2: up to AVX-512. Set lower only to test what other machines would run. */
#ifndef PENSTOCK_VECTORS
#define PENSTOCK_VECTORS 2
#endif

#if PENSTOCK_VECTORS > 0 && defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define WITH_X86 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx2,avx512f,avx512dq,avx512vl")))
#define VBMI __attribute__((target("avx2,avx512vl,avx512vbmi")))
INLINE int has_avx2(void) { return __builtin_cpu_supports("avx2"); }
INLINE int has_avx512(void) {
    return PENSTOCK_VECTORS > 1 && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
INLINE int has_vbmi(void) { return PENSTOCK_VECTORS > 1 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vl"); }
#else
#define WITH_X86 0
#endif

/* The lowest bit that is set; one must be. */
INLINE int lowest(uint64_t mask) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(mask);
#else
    int bit = 0;
    while (!(mask >> bit & 1)) bit++;
    return bit;
#endif
}

/* ---- frames and check sums: framing.c ---- */

/* TFRecord framing: length (uint64), masked CRC32C of the length, data, masked CRC32C of the data; all little-endian. */
enum { HEADER_BYTES = 12, FOOTER_BYTES = 4, FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES };

/* What is wrong with a frame; the names and meanings of `penstock.kernels.framing.FrameStatus`. */
enum { FRAME_GOOD = 0, FRAME_MORE = 1, FRAME_FULL = 2, FRAME_CUT = 3, FRAME_LENGTH_CRC = 4, FRAME_LIMIT = 5, FRAME_DATA_CRC = 6, FRAME_OTHER_LENGTH = 7 };

/* The CRC32C of `value`'s bytes followed by these; 0 is the check sum of nothing. */
uint32_t penstock_update_crc32c(const uint8_t *data, int64_t num, uint32_t value);

/* Checks the frame that should fill `num` bytes (any number, also negative) exactly; returns its status. With FRAME_GOOD its data are the
 * num - FRAME_BYTES bytes at bytes + HEADER_BYTES. */
int penstock_frame_status(const uint8_t *bytes, int64_t num, int check_data);

#endif
