/* Asks the system for what is not in memory before it is read. */
#define _GNU_SOURCE
#include "spans.h"

#if defined(__linux__)
#include <sys/uio.h>
#endif

#if defined(__linux__) && defined(RWF_NOWAIT)
enum { LEAST = 8 };

int penstock_fetch_ahead(const int64_t *offsets, const int64_t *lengths, const int64_t *descriptors, int64_t num, int64_t every) {
    int missing = 0;
    for (int64_t row = 0; row < num && num >= LEAST && !missing; row += every) {
        char byte;
        const struct iovec one = {&byte, 1};
        if (descriptors[row] >= 0 && lengths[row] > 0)
            missing = preadv2((int)descriptors[row], &one, 1, (off_t)offsets[row], RWF_NOWAIT) < 0 && errno == EAGAIN;
    }
    for (int64_t row = 0; row < num && missing; row++)
        if (descriptors[row] >= 0 && lengths[row] > 0)
            (void)posix_fadvise((int)descriptors[row], (off_t)offsets[row], (off_t)lengths[row], POSIX_FADV_WILLNEED);
    return missing;
}
#else
int penstock_fetch_ahead(const int64_t *offsets, const int64_t *lengths, const int64_t *descriptors, int64_t num, int64_t every) {
    (void)offsets, (void)lengths, (void)descriptors, (void)num, (void)every;
    return 0;
}
#endif
