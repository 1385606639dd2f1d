/* Finds and checks the frames of TFRecord files. Nothing is read beyond the bytes given, whatever the length fields say. */
#include "framing.h"

INLINE uint32_t little32(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

INLINE uint64_t length_of(const uint8_t *header) { return little32(header) | (uint64_t)little32(header + 4) << 32; }

/* A CRC over data that contain CRCs is weak, so the format stores them rotated and shifted. */
static int matches(const uint8_t *data, int64_t num, const uint8_t *stored) {
    const uint32_t crc = penstock_update_crc32c(data, num, 0);
    return ((crc >> 15 | crc << 17) + UINT32_C(0xA282EAD8)) == little32(stored);
}

enum { HEADERS_ONLY = 0, WHOLE = 1, CHECKED = 2 };

/* Finds frames in the `num` bytes at `buffer`, which begin at the border of a frame; `left` bytes of the file are left from there on.
 *
 * mode: HEADERS_ONLY counts a frame of which only the header lies in the buffer, WHOLE asks for all of it, CHECKED checks its data too.
 * Writes base + offset and whole length of up to `capacity` frames. state: where it stopped (a border, counted from the buffer's begin, with
 * HEADERS_ONLY perhaps beyond its end); why (FRAME_GOOD: the end of the file); for FRAME_MORE how many bytes are
 * needed from that border on, for FRAME_CUT, _LIMIT, _LENGTH_CRC and _DATA_CRC the length field as it stands there. Returns the count. */
API int64_t penstock_scan_frames(const uint8_t *buffer, int64_t num, int64_t left, int64_t limit, int mode, int64_t base,
                                 int64_t *offsets, int64_t *lengths, int64_t capacity, int64_t *state) {
    int64_t count = 0, position = 0, detail = 0;
    int status = FRAME_GOOD;
    while (position < left) {
        if (count == capacity) {
            status = FRAME_FULL;
            break;
        }
        /* Differences, never sums: `left` may be the largest number there is. */
        if (left - position < HEADER_BYTES) {
            status = FRAME_CUT;
            detail = -1;
            break;
        }
        if (num - position < HEADER_BYTES) {
            status = FRAME_MORE;
            detail = HEADER_BYTES;
            break;
        }
        const uint8_t *header = buffer + position;
        const uint64_t length = length_of(header);
        const int64_t room = left - position - FRAME_BYTES;
        detail = (int64_t)length;
        if (!matches(header, 8, header + 8)) status = FRAME_LENGTH_CRC;
        else if (room < 0 || length > (uint64_t)room) status = FRAME_CUT;
        else if (length > (uint64_t)limit) status = FRAME_LIMIT;
        else if (mode != HEADERS_ONLY && num - position - FRAME_BYTES < (int64_t)length) {
            status = FRAME_MORE;
            detail = (int64_t)length + FRAME_BYTES;
        } else if (mode == CHECKED && !matches(header + HEADER_BYTES, (int64_t)length, header + HEADER_BYTES + length)) status = FRAME_DATA_CRC;
        if (status != FRAME_GOOD) break;
        offsets[count] = base + position;
        lengths[count] = (int64_t)length + FRAME_BYTES;
        position += lengths[count++];
    }
    state[0] = position;
    state[1] = status;
    state[2] = status == FRAME_GOOD || status == FRAME_FULL ? 0 : detail;
    return count;
}

/* Returns the first place from `from` on where a frame may begin: a length with its right check sum, that fits the `left` bytes from the buffer's
 * begin on. Where there is none in these `num` bytes: the first place whose header does not lie in them wholly. */
API int64_t penstock_find_frame(const uint8_t *buffer, int64_t num, int64_t from, int64_t left) {
    int64_t place = from;
    for (; num - place >= HEADER_BYTES; place++) {
        const uint64_t length = length_of(buffer + place);
        if (left - place >= FRAME_BYTES && length <= (uint64_t)(left - place - FRAME_BYTES) && matches(buffer + place, 8, buffer + place + 8)) break;
    }
    return place;
}

int penstock_frame_status(const uint8_t *bytes, int64_t num, int check_data) {
    if (num < FRAME_BYTES) return FRAME_CUT;
    if (!matches(bytes, 8, bytes + 8)) return FRAME_LENGTH_CRC;
    if (length_of(bytes) != (uint64_t)(num - FRAME_BYTES)) return FRAME_OTHER_LENGTH;
    if (check_data && !matches(bytes + HEADER_BYTES, num - FRAME_BYTES, bytes + num - FOOTER_BYTES)) return FRAME_DATA_CRC;
    return FRAME_GOOD;
}

/* Checks frames that lie anywhere in a buffer: statuses[i] of the one that should be lengths[i] bytes at starts[i]. Returns the number of bad ones. */
API int64_t penstock_check_frames(const uint8_t *buffer, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t num,
                                  int check_data, uint8_t *statuses) {
    int64_t num_bad = 0;
    for (int64_t row = 0; row < num; row++) {
        const int64_t start = starts[row], length = lengths[row];
        const int inside = start >= 0 && length >= 0 && start <= size && length <= size - start;
        statuses[row] = (uint8_t)(inside ? penstock_frame_status(buffer + start, length, check_data) : FRAME_CUT);
        num_bad += statuses[row] != FRAME_GOOD;
    }
    return num_bad;
}
