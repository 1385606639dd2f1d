/* Spans of local files: see spans.c. */
#ifndef PENSTOCK_SPANS_H
#define PENSTOCK_SPANS_H

#include "penstock.h"

/* Asks the system for all spans of files that are open, when some are not in memory: then they come together, and not one after the other.
 * Of `num` spans every `every`-th is looked at, about a microsecond each. Says whether one was missing. */
int penstock_fetch_ahead(const int64_t *offsets, const int64_t *lengths, const int64_t *descriptors, int64_t num, int64_t every);

#endif
