/* Many spans copied to places of their own by one call: a copy of a hundred kilobytes takes as long as hundreds of lines of Python. */
#include "penstock.h"

/* Copy lengths[i] bytes from sources[i] to targets[i]; nothing overlaps. */
API void penstock_copy_spans(unsigned char *const *sources, unsigned char *const *targets, const int64_t *lengths, int64_t num) {
    for (int64_t span = 0; span < num; span++) memcpy(targets[span], sources[span], (size_t)lengths[span]);
}
