/* TFRecord framing: length (uint64), masked CRC32C of the length, data, masked CRC32C of the data; all little-endian. */
#ifndef PENSTOCK_FRAMING_H
#define PENSTOCK_FRAMING_H

#include "penstock.h"

enum { HEADER_BYTES = 12, FOOTER_BYTES = 4, FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES };

/* What is wrong with a frame; the names and meanings of `penstock.kernels.framing.FrameStatus`. */
enum { FRAME_GOOD = 0, FRAME_MORE = 1, FRAME_FULL = 2, FRAME_CUT = 3, FRAME_LENGTH_CRC = 4, FRAME_LIMIT = 5, FRAME_DATA_CRC = 6, FRAME_OTHER_LENGTH = 7 };

/* The CRC32C of `value`'s bytes followed by these; 0 is the check sum of nothing. */
uint32_t penstock_update_crc32c(const uint8_t *data, int64_t num, uint32_t value);

/* Checks the frame that should fill `num` bytes (any number, also negative) exactly; returns its status. With FRAME_GOOD its data are the
 * num - FRAME_BYTES bytes at bytes + HEADER_BYTES. */
int penstock_frame_status(const uint8_t *bytes, int64_t num, int check_data);

#endif
