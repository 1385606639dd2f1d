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
#include <unistd.h>
#endif

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define API __attribute__((visibility("default")))
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
INLINE int has_avx2(void) { return __builtin_cpu_supports("avx2"); }
INLINE int has_avx512(void) {
    return PENSTOCK_VECTORS > 1 && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
#define WITH_X86 0
#endif

#endif
