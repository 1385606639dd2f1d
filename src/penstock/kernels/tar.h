/* The numbers of a scan of a tar file, which stand in tar_codes.py too, and what it keeps. */
#ifndef PENSTOCK_TAR_H
#define PENSTOCK_TAR_H

#include "penstock.h"

enum {
    UNIT = 512,
    MAX_NAME = 4096,
    MAX_EXTENDED = 1 << 20,
    MAX_PARTS = 256,
};
static const int64_t MAX_BYTES = INT64_C(0xFFFFFFFF); /* of a member, and of a sample */

/* Columns of a row: one regular member that belongs to a sample. */
enum { START, DATA, SIZE, NAME_END, KEY_LENGTH, FIRST, KEY_HASH, OTHER_HASH, FIELD_HASH, CRC, NUM_COLUMNS };

/* Places in the state. */
enum {
    POSITION,
    NUM_ROWS,
    NUM_NAME_BYTES,
    SAMPLE,
    OWED,
    WITH_CRC,
    ERROR_AT,
    ERROR_NAME,
    FIRST_ODD,
    DIRECTORIES,
    LINKS,
    SPECIAL,
    GLOBALS,
    META,
    NAMELESS,
};

/* Outcomes. */
enum {
    MORE = 0,
    END = 1,
    BAD_CHECKSUM = -1,
    BAD_SIZE = -2,
    CUT = -3,
    CUT_PADDING = -4,
    LONG_NAME = -5,
    BAD_EXTENDED = -6,
    LARGE_EXTENDED = -7,
    SPARSE = -8,
    TWO_NAMES = -9,
    ORPHAN = -10,
    GLOBAL_NAME = -11,
    SEVERAL_VOLUMES = -12,
    LARGE_MEMBER = -13,
    LARGE_SAMPLE = -14,
    MANY_PARTS = -15,
    SAME_FIELD = -16,
    FULL = -17,
    NOT_ONE = -18,
    OUTSIDE = -19,
};

typedef struct {
    const uint8_t *data;
    int64_t length, base, total; /* `data` stands at byte `base` of a file that has `total` bytes, or of as much of it as may be used */
    int64_t *rows, max_rows;
    uint8_t *names;
    int64_t max_names;
    int64_t *state;
} scanner;

typedef struct {
    const uint8_t *path;
    int64_t path_length, size; /* size -1: not given */
    int any, pax, gnu_name, gnu_link;
} extended;

#endif
