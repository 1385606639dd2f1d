/* Members of a tar file and the samples that they make up, from bytes that may be anything.
 *
 * The twin in tar.py has Python's tarfile read the headers; the numbers below stand there too. Every length is
 * compared with the bytes that are left and with a limit before it is used; nothing is allocated, and names are only copied.
 */
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

static int is_zero(const uint8_t *block) {
    uint8_t any = 0;
    for (int place = 0; place < UNIT; place++) any |= block[place];
    return any == 0;
}

/* An octal number of a header field; -1 when it is none. Blank is 0, as old programs write it. */
static int64_t octal(const uint8_t *field, int width) {
    int64_t value = 0;
    int place = 0;
    while (place < width && field[place] == ' ') place++;
    for (; place < width && field[place] != ' ' && field[place] != 0; place++) {
        if (field[place] < '0' || field[place] > '7') return -1;
        value = value * 8 + (field[place] - '0');
    }
    return value;
}

/* A size: octal, or base 256 when the first bit is set. -1: no number, negative, or beyond 63 bits. */
static int64_t size_of(const uint8_t *field) {
    if (field[0] < 0x80) return octal(field, 12);
    if (field[0] != 0x80) return -1; /* 0xff begins a negative number */
    uint64_t value = 0;
    for (int place = 1; place < 4; place++)
        if (field[place]) return -1;
    for (int place = 4; place < 12; place++) value = value << 8 | field[place];
    return value >> 63 ? -1 : (int64_t)value;
}

/* The sum of a header's bytes, those of its own field taken as spaces; old programs added them as signed. */
static int checksum_fits(const uint8_t *header) {
    const int64_t wanted = octal(header + 148, 8);
    int32_t plain = 0, high = 0;
    for (int place = 0; place < UNIT; place++) {
        plain += header[place];
        high += header[place] >> 7;
    }
    for (int place = 148; place < 156; place++) {
        plain += ' ' - header[place];
        high -= header[place] >> 7;
    }
    return wanted >= 0 && (wanted == plain || wanted == plain - 256 * high);
}

static int64_t text_length(const uint8_t *field, int64_t width) {
    const uint8_t *end = memchr(field, 0, (size_t)width);
    return end ? end - field : width;
}

static int starts_with(const uint8_t *text, int64_t length, const char *wanted) {
    const int64_t size = (int64_t)strlen(wanted);
    return length >= size && memcmp(text, wanted, (size_t)size) == 0;
}

/* One "LENGTH key=value\n" of a PAX header at `at`; return where the next one begins, or an outcome. */
static int64_t pax_record(const uint8_t *body, int64_t at, int64_t size, int global, extended *ext) {
    int64_t length = 0, place = at;
    for (; place < size && body[place] >= '0' && body[place] <= '9'; place++) {
        length = length * 10 + (body[place] - '0');
        if (length > size) return BAD_EXTENDED;
    }
    if (place == at || place >= size || body[place] != ' ' || length > size - at || length <= place + 1 - at) return BAD_EXTENDED;
    const uint8_t *key = body + place + 1, *stop = body + at + length - 1;
    if (*stop != '\n') return BAD_EXTENDED;
    const uint8_t *equal = memchr(key, '=', (size_t)(stop - key));
    if (!equal || equal == key) return BAD_EXTENDED;
    const int64_t key_length = equal - key, value_length = stop - equal - 1;
    const uint8_t *value = equal + 1;
    const int is_path = key_length == 4 && memcmp(key, "path", 4) == 0, is_size = key_length == 4 && memcmp(key, "size", 4) == 0;
    if (starts_with(key, key_length, "GNU.sparse.")) return SPARSE;
    if (global && (is_path || is_size)) return GLOBAL_NAME;
    if (is_path) {
        if (ext->path) return TWO_NAMES;
        if (value_length > MAX_NAME) return LONG_NAME;
        if (value_length && memchr(value, 0, (size_t)value_length)) return BAD_EXTENDED;
        if (value_length) {
            ext->path = value;
            ext->path_length = value_length;
        }
    } else if (is_size) {
        int64_t number = 0;
        if (ext->size >= 0) return TWO_NAMES;
        if (value_length < 1 || value_length > 18) return BAD_SIZE;
        for (int64_t digit = 0; digit < value_length; digit++) {
            if (value[digit] < '0' || value[digit] > '9') return BAD_SIZE;
            number = number * 10 + (value[digit] - '0');
        }
        ext->size = number;
    }
    return at + length;
}

/* Take in one header that only speaks about the next one. */
static int64_t extend(uint8_t type, const uint8_t *body, int64_t size, extended *ext, int64_t *state) {
    if (type == 'g') state[GLOBALS]++;
    else ext->any = 1;
    if (type == 'K') return ext->gnu_link++ ? TWO_NAMES : MORE; /* where a link leads: nobody asks */
    if (type == 'L') {
        const int64_t length = text_length(body, size);
        if (ext->gnu_name++ || ext->path) return TWO_NAMES;
        if (length > MAX_NAME) return LONG_NAME;
        if (length == 0) return BAD_EXTENDED;
        ext->path = body;
        ext->path_length = length;
        return MORE;
    }
    if (type != 'g' && ext->pax++) return TWO_NAMES;
    for (int64_t at = 0; at < size;) {
        at = pax_record(body, at, size, type == 'g', ext);
        if (at < 0) return at;
    }
    return MORE;
}

/* Copy a member's name behind the others; return its length or an outcome. */
static int64_t take_name(const scanner *in, const uint8_t *header, const extended *ext) {
    uint8_t *out = in->names + in->state[NUM_NAME_BYTES];
    const int64_t room = in->max_names - in->state[NUM_NAME_BYTES];
    if (ext->path) {
        if (ext->path_length > room) return FULL;
        memcpy(out, ext->path, (size_t)ext->path_length);
        return ext->path_length;
    }
    /* GNU's own format keeps times where POSIX has the prefix. */
    const int64_t prefix = memcmp(header + 257, "ustar\0", 6) == 0 ? text_length(header + 345, 155) : 0;
    const int64_t length = text_length(header, 100), whole = prefix ? prefix + 1 + length : length;
    if (whole > room) return FULL;
    if (prefix) {
        memcpy(out, header + 345, (size_t)prefix);
        out[prefix] = '/';
        memcpy(out + prefix + 1, header, (size_t)length);
    } else {
        memcpy(out, header, (size_t)length);
    }
    return whole;
}

static uint8_t lower(uint8_t letter) { return letter >= 'A' && letter <= 'Z' ? (uint8_t)(letter + 32) : letter; }

/* FNV-1a. Fields are compared without regard to the case of ASCII letters. */
static int64_t hash_of_field(const uint8_t *text, int64_t length) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (int64_t place = 0; place < length; place++) hash = (hash ^ lower(text[place])) * UINT64_C(0x100000001B3);
    return (int64_t)hash;
}

/* Two hashes of a key, together wide enough that equal ones mean equal keys: the keys themselves are not kept. */
static void hash_key(const uint8_t *text, int64_t length, int64_t *row) {
    uint64_t one = UINT64_C(0xCBF29CE484222325), other = (uint64_t)length;
    for (int64_t place = 0; place < length; place++) {
        one = (one ^ text[place]) * UINT64_C(0x100000001B3);
        other = (other + text[place] + 1) * UINT64_C(0x9E3779B97F4A7C15);
        other ^= other >> 29;
    }
    row[KEY_HASH] = (int64_t)one;
    row[OTHER_HASH] = (int64_t)other;
}

static int same_letters(const uint8_t *left, const uint8_t *right, int64_t length) {
    for (int64_t place = 0; place < length; place++)
        if (lower(left[place]) != lower(right[place])) return 0;
    return 1;
}

/* The length of the key in a name: up to the first dot of the last part of the path. -1: there is no such dot, or nothing before it. */
static int64_t key_length_of(const uint8_t *name, int64_t length) {
    int64_t part = length;
    while (part > 0 && name[part - 1] != '/') part--;
    const uint8_t *dot = part < length ? memchr(name + part, '.', (size_t)(length - part)) : NULL;
    return dot && dot != name + part ? dot - name : -1;
}

/* Names whose first part is __so__ hold facts about the archive, and no sample. */
static int is_meta(const uint8_t *name, int64_t length) {
    const uint8_t *slash = length ? memchr(name, '/', (size_t)length) : NULL;
    const int64_t part = slash ? slash - name : length;
    return part >= 4 && name[0] == '_' && name[1] == '_' && name[part - 2] == '_' && name[part - 1] == '_';
}

static int64_t name_start(const scanner *in, int64_t row) { return row ? in->rows[(row - 1) * NUM_COLUMNS + NAME_END] : 0; }

/* Add the bytes start..end of the file, as far as they are here, to the check sum of a row; note whether more of them follow. */
static void sum_row(const scanner *in, int64_t *row, int64_t start, int64_t end) {
    const int64_t here = in->base + in->length, stop = end < here ? end : here;
    if (!in->state[WITH_CRC]) return;
    row[CRC] = penstock_update_crc32c(in->data + (start - in->base), stop - start, (uint32_t)row[CRC]);
    in->state[OWED] = end > here ? end : 0;
}

/* Put a regular member whose name was taken into the sample before it, or begin another one. */
static int64_t add_row(const scanner *in, int64_t start, int64_t data, int64_t size, int64_t end, int64_t length) {
    int64_t *state = in->state;
    const int64_t begin = state[NUM_NAME_BYTES], row = state[NUM_ROWS], key = key_length_of(in->names + begin, length);
    const uint8_t *name = in->names + begin;
    if (is_meta(name, length)) {
        state[META]++;
        return MORE;
    }
    if (key < 0) {
        state[NAMELESS]++;
        return MORE;
    }
    if (size > MAX_BYTES) return LARGE_MEMBER;
    if (row >= in->max_rows) return FULL;
    int64_t *own = in->rows + row * NUM_COLUMNS, sample = state[SAMPLE];
    own[FIELD_HASH] = hash_of_field(name + key + 1, length - key - 1);
    if (sample >= 0) {
        const int64_t *first = in->rows + sample * NUM_COLUMNS;
        if (first[KEY_LENGTH] != key || memcmp(in->names + name_start(in, sample), name, (size_t)key) != 0) sample = -1;
        else if (row - sample >= MAX_PARTS) return MANY_PARTS;
    }
    for (int64_t other = sample; other >= 0 && other < row; other++) {
        const int64_t *its = in->rows + other * NUM_COLUMNS, field = name_start(in, other) + key + 1;
        if (its[FIELD_HASH] == own[FIELD_HASH] && its[NAME_END] - field == length - key - 1 &&
            same_letters(in->names + field, name + key + 1, length - key - 1))
            return SAME_FIELD;
    }
    if (end - (sample < 0 ? start : in->rows[sample * NUM_COLUMNS + START]) > MAX_BYTES) return LARGE_SAMPLE;
    own[START] = start;
    own[DATA] = data;
    own[SIZE] = size;
    own[NAME_END] = begin + length;
    own[KEY_LENGTH] = key;
    own[FIRST] = sample < 0;
    hash_key(name, key, own);
    own[CRC] = sample < 0 ? 0 : own[CRC - NUM_COLUMNS];
    sum_row(in, own, start, end);
    if (sample < 0) state[SAMPLE] = row;
    state[NUM_ROWS] = row + 1;
    state[NUM_NAME_BYTES] = begin + length;
    return MORE;
}

/* Book a member that is not extended information; return its bytes in the file behind the header, padding included, or an outcome. */
static int64_t take_member(const scanner *in, int64_t first, int64_t at, const uint8_t *header, int64_t size, const extended *ext) {
    int64_t *state = in->state;
    const uint8_t type = header[156];
    const int64_t left = in->total - in->base - at - UNIT;
    const int regular = type == '0' || type == 0 || type == '7';
    if (type == 'S') return SPARSE;
    if (type == 'M' || type == 'N') return SEVERAL_VOLUMES;
    const int64_t length = take_name(in, header, ext);
    if (length < 0) return length;
    state[ERROR_NAME] = length;
    const int directory = type == '5' || type == 'D' || (type == 0 && length && in->names[state[NUM_NAME_BYTES] + length - 1] == '/');
    /* Links, devices and directories have no data, whatever their size says. */
    if ((directory && type != 'D') || (type >= '1' && type <= '6')) size = 0;
    if (size > left) return CUT;
    const int64_t padding = (UNIT - size % UNIT) % UNIT;
    if (padding > left - size) return CUT_PADDING;
    if (regular && !directory) {
        const int64_t outcome = add_row(in, in->base + first, in->base + at + UNIT, size, in->base + at + UNIT + size + padding, length);
        return outcome < 0 ? outcome : size + padding;
    }
    if (directory) {
        state[DIRECTORIES]++;
    } else {
        if (state[FIRST_ODD] < 0) state[FIRST_ODD] = in->base + at;
        state[type == '1' || type == '2' ? LINKS : SPECIAL]++;
    }
    return size + padding;
}

/* Go on at state[POSITION] as far as the bytes reach; an unfinished member is begun again by the next call. */
static int64_t scan(const scanner *in) {
    int64_t *state = in->state, first = state[POSITION], at = first;
    extended ext = {.size = -1};
    if (state[OWED] > in->base && state[NUM_ROWS] > 0)
        sum_row(in, in->rows + (state[NUM_ROWS] - 1) * NUM_COLUMNS, in->base, state[OWED]);
    for (;;) {
        state[POSITION] = first;
        state[ERROR_AT] = in->base + at;
        state[ERROR_NAME] = 0;
        if (in->length - at < UNIT) return MORE;
        const uint8_t *header = in->data + at;
        if (header[0] == 0 && is_zero(header)) return ext.any ? ORPHAN : END;
        if (!checksum_fits(header)) return BAD_CHECKSUM;
        const int64_t size = size_of(header + 124);
        if (size < 0) return BAD_SIZE;
        const uint8_t type = header[156];
        int64_t taken;
        if (type == 'x' || type == 'X' || type == 'g' || type == 'L' || type == 'K') {
            if (size > MAX_EXTENDED) return LARGE_EXTENDED;
            taken = (size + UNIT - 1) / UNIT * UNIT;
            if (taken > in->total - in->base - at - UNIT) return CUT;
            if (taken > in->length - at - UNIT) return MORE;
            const int64_t globals = state[GLOBALS], outcome = extend(type, header + UNIT, size, &ext, state);
            if (outcome < 0) return outcome;
            at += UNIT + taken;
            if (ext.any) {
                /* A global one inside the headers of a member would be counted again when they are read again. */
                if (state[GLOBALS] != globals) return BAD_EXTENDED;
                continue;
            }
        } else {
            taken = take_member(in, first, at, header, ext.size < 0 ? size : ext.size, &ext);
            if (taken < 0) return taken;
            at += UNIT + taken;
        }
        first = at;
        ext = (extended){.size = -1};
    }
}

/* Scan one piece of a file: `length` bytes that stand at `base` of `total`. See tar.py for rows, state and outcomes. */
API int64_t penstock_tar_scan(const uint8_t *data, int64_t length, int64_t base, int64_t total, int64_t *rows, int64_t max_rows,
                              uint8_t *names, int64_t max_names, int64_t *state) {
    const scanner in = {data, length, base, total, rows, max_rows, names, max_names, state};
    return scan(&in);
}

/* Scan samples that lie in `data`, each as a whole: `ends[i]` are the rows up to and with sample i. Return 0; or an outcome, with the number of
 * the sample in state[SAMPLE] and the place of the error counted from the sample's beginning. */
API int64_t penstock_tar_samples(const uint8_t *data, int64_t length, const int64_t *starts, const int64_t *lengths, int64_t num_samples,
                                 int64_t *rows, int64_t max_rows, uint8_t *names, int64_t max_names, int64_t *ends, int64_t *state) {
    for (int64_t sample = 0; sample < num_samples; sample++) {
        const int64_t start = starts[sample], size = lengths[sample], before = state[NUM_ROWS];
        int64_t outcome = OUTSIDE;
        state[POSITION] = 0;
        state[SAMPLE] = -1;
        if (start >= 0 && size >= 0 && start <= length && size <= length - start) {
            const scanner in = {data + start, size, 0, size, rows, max_rows, names, max_names, state};
            outcome = scan(&in);
            if (outcome >= 0 && (outcome == END || state[POSITION] != size || state[SAMPLE] != before)) outcome = NOT_ONE;
        }
        if (outcome < 0) {
            state[SAMPLE] = sample;
            return outcome;
        }
        ends[sample] = state[NUM_ROWS];
        for (int64_t row = before; row < ends[sample]; row++) {
            rows[row * NUM_COLUMNS + START] += start;
            rows[row * NUM_COLUMNS + DATA] += start;
        }
    }
    return 0;
}
