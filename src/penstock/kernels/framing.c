/* CRC32C, and the frames of TFRecord files, found and checked. Nothing is read beyond the bytes given, whatever the length fields say.
 *
 * CRC32C (Castagnoli, reflected polynomial 0x82F63B78), the check sum of TFRecord and of the index files.
 *
 * With the instructions of SSE4.2 and PCLMULQDQ three lanes run side by side, for one CRC32 instruction takes three cycles and each cycle can
 * begin one; then the lanes are joined by multiplication. With VPCLMULQDQ on AVX-512, 256 bytes at a time are folded into those behind them:
 * 1 kB takes half as long. 64-bit ARM has the instruction at compile time or not at all. Elsewhere: eight tables.
 */
#include "penstock.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && PENSTOCK_VECTORS > 0
#define WITH_ARM_CRC 1
#include <arm_acle.h>
#else
#define WITH_ARM_CRC 0
#endif

/* A table is linear over the bits of its index, so eight numbers say it all. */
#define ENTRY(i, a, b, c, d, e, f, g, h)                                                                                                     \
    (((i) & 1 ? a : 0u) ^ ((i) & 2 ? b : 0u) ^ ((i) & 4 ? c : 0u) ^ ((i) & 8 ? d : 0u) ^ ((i) & 16 ? e : 0u) ^ ((i) & 32 ? f : 0u) ^         \
     ((i) & 64 ? g : 0u) ^ ((i) & 128 ? h : 0u))
#define FOUR(i, ...) ENTRY(i, __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), ENTRY((i) + 2, __VA_ARGS__), ENTRY((i) + 3, __VA_ARGS__)
#define SIXTEEN(i, ...) FOUR(i, __VA_ARGS__), FOUR((i) + 4, __VA_ARGS__), FOUR((i) + 8, __VA_ARGS__), FOUR((i) + 12, __VA_ARGS__)
#define SIXTY_FOUR(i, ...) SIXTEEN(i, __VA_ARGS__), SIXTEEN((i) + 16, __VA_ARGS__), SIXTEEN((i) + 32, __VA_ARGS__), SIXTEEN((i) + 48, __VA_ARGS__)
#define ROW(...) {SIXTY_FOUR(0, __VA_ARGS__), SIXTY_FOUR(64, __VA_ARGS__), SIXTY_FOUR(128, __VA_ARGS__), SIXTY_FOUR(192, __VA_ARGS__)}

/* TABLES[k][byte]: the remainder of a byte followed by k zero bytes. */
static const uint32_t TABLES[8][256] = {
    ROW(0xF26B8303, 0xE13B70F7, 0xC79A971F, 0x8AD958CF, 0x105EC76F, 0x20BD8EDE, 0x417B1DBC, 0x82F63B78),
    ROW(0x13A29877, 0x274530EE, 0x4E8A61DC, 0x9D14C3B8, 0x3FC5F181, 0x7F8BE302, 0xFF17C604, 0xFBC3FAF9),
    ROW(0xA541927E, 0x4F6F520D, 0x9EDEA41A, 0x38513EC5, 0x70A27D8A, 0xE144FB14, 0xC76580D9, 0x8B277743),
    ROW(0xDD45AAB8, 0xBF672381, 0x7B2231F3, 0xF64463E6, 0xE964B13D, 0xD725148B, 0xABA65FE7, 0x52A0C93F),
    ROW(0x38116FAC, 0x7022DF58, 0xE045BEB0, 0xC5670B91, 0x8F2261D3, 0x1BA8B557, 0x37516AAE, 0x6EA2D55C),
    ROW(0xEF306B19, 0xDB8CA0C3, 0xB2F53777, 0x6006181F, 0xC00C303E, 0x85F4168D, 0x0E045BEB, 0x1C08B7D6),
    ROW(0x68032CC8, 0xD0065990, 0xA5E0C5D1, 0x4E2DFD53, 0x9C5BFAA6, 0x3D5B83BD, 0x7AB7077A, 0xF56E0EF4),
    ROW(0x493C7D27, 0x9278FA4E, 0x211D826D, 0x423B04DA, 0x847609B4, 0x0D006599, 0x1A00CB32, 0x34019664)};

/* Eight bytes, the first one lowest, on any machine. */
INLINE uint64_t little64(const uint8_t *bytes) {
    uint64_t word = 0;
    for (int place = 7; place >= 0; place--) word = word << 8 | bytes[place];
    return word;
}

INLINE uint32_t one_byte(uint32_t crc, uint8_t byte) { return crc >> 8 ^ TABLES[0][(crc ^ byte) & 0xFF]; }

#if !WITH_ARM_CRC
static uint32_t update_tables(uint32_t crc, const uint8_t *data, int64_t num) {
    for (; num >= 8; num -= 8, data += 8) {
        const uint64_t word = little64(data) ^ crc;
        crc = 0;
        for (int place = 0; place < 8; place++) crc ^= TABLES[7 - place][word >> (8 * place) & 0xFF];
    }
    while (num-- > 0) crc = one_byte(crc, *data++);
    return crc;
}
#endif

#if WITH_X86
enum { MOST_WORDS = 128, LEAST_BYTES = 3 * 64 };

/* SHIFTS[n - 1] = x^(64 n - 33) mod P, reflected: what a remainder is multiplied by to stand n words of eight bytes further to the left. */
static const uint32_t SHIFTS[2 * MOST_WORDS] = {
    0x00000001, 0x493C7D27, 0xF20C0DFE, 0xBA4FC28E, 0x3DA6D0CB, 0xDDC0152B, 0x1C291D04, 0x9E4ADDF8, 0x740EEF02, 0x39D3B296,
    0x083A6EEC, 0x0715CE53, 0xC49F4F67, 0x47DB8317, 0x2AD91C30, 0x0D3B6092, 0x6992CEA2, 0xC96CFDC0, 0x7E908048, 0x878A92A7,
    0x1B3D8F29, 0xDAECE73E, 0xF1D0F55E, 0xAB7AFF2A, 0xA87AB8A8, 0x2162D385, 0x8462D800, 0x83348832, 0x71D111A8, 0x299847D5,
    0xFFD852C6, 0xB9E02B86, 0xDCB17AA4, 0x18B33A4E, 0xF37C5AEE, 0xB6DD949B, 0x6051D5A2, 0x78D9CCB7, 0x18B0D4FF, 0xBAC2FD7B,
    0x21F3D99C, 0xA60CE07B, 0x8F158014, 0xCE7F39F4, 0xA00457F7, 0x61D82E56, 0x8D6D2C43, 0xD270F1A2, 0x00AC29CF, 0xC619809D,
    0xE9ADF796, 0x2B3CAC5D, 0x96638B34, 0x65863B64, 0xE0E9F351, 0x1B03397F, 0x9AF01F2D, 0xEBB883BD, 0x2CFF42CF, 0xB3E32C28,
    0x88F25A3A, 0x064F7F26, 0x4E36F0B0, 0xDD7E3B0C, 0xBD6F81F8, 0xF285651C, 0x91C9BD4B, 0x10746F3C, 0x885F087B, 0xC7A68855,
    0x4C144932, 0x271D9844, 0x52148F02, 0x8E766A0C, 0xA3C6F37A, 0x93A5F730, 0xD7C0557F, 0x6CB08E5C, 0x63DED06A, 0x6B749FB2,
    0x4D56973C, 0x1393E203, 0x9669C9DF, 0xCEC3662E, 0xE417F38A, 0x96C515BB, 0x4B9E0F71, 0xE6FC4E6A, 0xD104B8FC, 0x8227BB8A,
    0x5B397730, 0xB0CD4768, 0xE78EB416, 0x39C7FF35, 0x61FF0E01, 0xD7A4825C, 0x8D96551C, 0x0AB3844B, 0x0BF80DD2, 0x0167D312,
    0x8821ABED, 0xF6076544, 0x6A45D2B2, 0x26F6A60A, 0xD8D26619, 0xA741C1BF, 0xDE87806C, 0x98D8D9CB, 0x14338754, 0x49C3CC9C,
    0x5BD2011F, 0x68BCE87A, 0xDD07448E, 0x57A3D037, 0xDDE8F5B9, 0x6956FC3B, 0xA3E3E02C, 0x42D98888, 0xD73C7BEA, 0x3771E98F,
    0x80FF0093, 0xB42AE3D9, 0x8FE4C34D, 0x2178513A, 0xDF99FC11, 0xE0AC139E, 0x6C23E841, 0x170076FA, 0xFE314258, 0x444DD413,
    0x0D8373A0, 0x6F345E45, 0x19E3635E, 0x41D17B64, 0x29F268B4, 0xFF0DBA97, 0x1DC0632A, 0xA2B73DF1, 0x1614F396, 0xF872E54C,
    0x9E2993D3, 0x1E41E9FC, 0x6BEBD73C, 0x86D8E4D2, 0x63AE91E6, 0x651BD98B, 0xF8C9DA7A, 0x5BB8F1BC, 0x945A19C1, 0xA90FD27A,
    0xEE8213B7, 0xB3AF077A, 0x93781DC7, 0x4984D782, 0xCCC4A1B9, 0xCA6EF3AC, 0xA2C2D971, 0x234E0B26, 0x1CAD4452, 0xDD66CBBB,
    0x74922601, 0x4597456A, 0xC55F7EAB, 0xE9E28EB4, 0xA1962329, 0x7B3FF57A, 0x2D370749, 0xC9C8B782, 0x397D84A1, 0x3F70CC6F,
    0x79113270, 0x93E106A4, 0xBC817803, 0x62EC6C6D, 0x88EB3C07, 0xD813B325, 0x6E4CB630, 0x0DF04680, 0x71971D5C, 0x2342001E,
    0xF33B8BC6, 0x0A2A8D7E, 0x9FB3BBC0, 0x6D9A4957, 0x6EF22B23, 0xE8B6368B, 0xCE2DF768, 0xD2C3ED1A, 0xE53A4FC7, 0x995A5724,
    0xBE60A91A, 0x9EF68D35, 0x1DFA0A15, 0x0C139B31, 0x8EC52396, 0xF2271E60, 0x0E766B11, 0x0B0BF8CA, 0x475846A4, 0x2664FD8B,
    0xB2A3DFA6, 0xED64812D, 0xDC1A160C, 0x02EE03B2, 0x79AFDF1C, 0x8604AE0F, 0x07AC6E46, 0x363BD6B3, 0x15F85253, 0x135C83FD,
    0x1BEC24DD, 0x5FABE670, 0x4C36CD5B, 0x35EC3279, 0xE0A22E29, 0x00BCF5F6, 0x7C2B6ED9, 0x8AE00689, 0x06FF88FD, 0x17F27698,
    0xF7317CF0, 0x58CA5F00, 0x61B6E40B, 0xAA7C7AD5, 0xDE8A97F8, 0xB5CFCA28, 0x88F61445, 0xDED288F8, 0xD4520E9E, 0x59F229BC,
    0x0C592BD5, 0x6D390DEC, 0x38EDFAF3, 0x37170390, 0x72CBFCDB, 0x6353C1CC, 0x348331A5, 0xC4584F5C, 0xC3977C19, 0xF48642E9,
    0xDAFAEA7C, 0x531377E2, 0x73DB4C04, 0xDD35BC8D, 0x72675CE8, 0xB25B29F2, 0x3EC2FF83, 0x9A5EDE41, 0xE8C7A017, 0xA563905D,
    0xCF4BFAEF, 0x45CDDF4E, 0x6BDE1AC7, 0xACFA3103, 0xAE1175C2, 0xA51B6135,
};

#if defined(__clang__) && __clang_major__ >= 14 /* where sse4.2 no longer brings crc32 */
#define CRC "sse4.2,crc32,pclmul"
#else
#define CRC "sse4.2,pclmul"
#endif
#define CRC_X86 __attribute__((target(CRC)))

INLINE uint64_t word_at(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

CRC_X86 static inline uint64_t product(uint64_t crc, uint32_t factor) {
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128((long long)factor), 0));
}

CRC_X86 static uint32_t update_x86(uint32_t start, const uint8_t *data, int64_t num) {
    uint64_t crc = start;
    while (num >= LEAST_BYTES) {
        const int64_t words = num / 24 < MOST_WORDS ? num / 24 : MOST_WORDS, lane = 8 * words;
        uint64_t second = 0, third = 0;
        for (const uint8_t *end = data + lane; data < end; data += 8) {
            crc = _mm_crc32_u64(crc, word_at(data));
            second = _mm_crc32_u64(second, word_at(data + lane));
            third = _mm_crc32_u64(third, word_at(data + 2 * lane));
        }
        crc = third ^ _mm_crc32_u64(0, product(crc, SHIFTS[2 * words - 1]) ^ product(second, SHIFTS[words - 1]));
        data += 2 * lane;
        num -= 3 * lane;
    }
    for (; num >= 8; num -= 8, data += 8) crc = _mm_crc32_u64(crc, word_at(data));
    while (num-- > 0) crc = _mm_crc32_u8((uint32_t)crc, *data++);
    return (uint32_t)crc;
}

#if PENSTOCK_VECTORS > 1 && (defined(__clang__) || __GNUC__ >= 8)
#define WITH_FOLDING 1
#define FOLDING __attribute__((target(CRC ",avx512f,avx512vl,avx512dq,vpclmulqdq")))
enum { FOLDED_BYTES = 256 };

/* What moves both halves of 16 bytes so many words of eight bytes to the right. */
FOLDING static inline __m128i factors(int words) { return _mm_set_epi64x((long long)SHIFTS[words - 1], (long long)SHIFTS[words]); }

/* Each 16 bytes moved by what its factors say, and added to those of `onto`. */
FOLDING static inline __m512i folded(__m512i value, __m512i factor, __m512i onto) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(value, factor, 0x00), _mm512_clmulepi64_epi128(value, factor, 0x11), onto, 0x96);
}

/* At least FOLDED_BYTES. The remainder of a polynomial does not change when its first bytes are multiplied to where later ones stand and added
 * to them (Gopal et al., Fast CRC Computation Using PCLMULQDQ, Intel 2009). */
FOLDING static uint32_t update_folding(uint32_t start, const uint8_t *data, int64_t num) {
    const __m512i far = _mm512_broadcast_i64x2(factors(32)), near = _mm512_broadcast_i64x2(factors(8));
    __m512i first = _mm512_loadu_si512(data), second = _mm512_loadu_si512(data + 64);
    __m512i third = _mm512_loadu_si512(data + 128), fourth = _mm512_loadu_si512(data + 192);
    first = _mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)start)));
    for (data += FOLDED_BYTES, num -= FOLDED_BYTES; num >= FOLDED_BYTES; data += FOLDED_BYTES, num -= FOLDED_BYTES) {
        first = folded(first, far, _mm512_loadu_si512(data));
        second = folded(second, far, _mm512_loadu_si512(data + 64));
        third = folded(third, far, _mm512_loadu_si512(data + 128));
        fourth = folded(fourth, far, _mm512_loadu_si512(data + 192));
    }
    fourth = folded(first, _mm512_broadcast_i64x2(factors(24)), fourth);
    fourth = folded(second, _mm512_broadcast_i64x2(factors(16)), fourth);
    fourth = folded(third, near, fourth);
    for (; num >= 64; data += 64, num -= 64) fourth = folded(fourth, near, _mm512_loadu_si512(data));
    __m512i to_last = _mm512_castsi128_si512(factors(6));
    to_last = _mm512_inserti64x2(to_last, factors(4), 1);
    to_last = _mm512_inserti64x2(to_last, factors(2), 2);
    to_last = _mm512_inserti64x2(to_last, _mm_setzero_si128(), 3);
    const __m512i moved = folded(fourth, to_last, _mm512_setzero_si512());
    __m128i last = _mm_xor_si128(_mm512_extracti64x2_epi64(moved, 0), _mm512_extracti64x2_epi64(moved, 1));
    last = _mm_xor_si128(last, _mm_xor_si128(_mm512_extracti64x2_epi64(moved, 2), _mm512_extracti64x2_epi64(fourth, 3)));
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last));
    crc = _mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(last, 1));
    for (; num >= 8; num -= 8, data += 8) crc = _mm_crc32_u64(crc, word_at(data));
    while (num-- > 0) crc = _mm_crc32_u8((uint32_t)crc, *data++);
    return (uint32_t)crc;
}

static int has_folding(void) {
    return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}
#else
#define WITH_FOLDING 0
#endif

static int has_crc(void) { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"); }
#endif

#if WITH_ARM_CRC
static uint32_t update_arm(uint32_t crc, const uint8_t *data, int64_t num) {
    for (; num >= 8; num -= 8, data += 8) crc = __crc32cd(crc, little64(data));
    while (num-- > 0) crc = __crc32cb(crc, *data++);
    return crc;
}
#endif

uint32_t penstock_update_crc32c(const uint8_t *data, int64_t num, uint32_t value) {
#if WITH_ARM_CRC
    return ~update_arm(~value, data, num);
#else
#if WITH_X86
#if WITH_FOLDING
    if (num >= FOLDED_BYTES && has_crc() && has_folding()) return ~update_folding(~value, data, num);
#endif
    if (has_crc()) return ~update_x86(~value, data, num);
#endif
    return ~update_tables(~value, data, num);
#endif
}

/* What Python calls: a function that everybody sees is called through a table, also from within the library. */
API uint32_t penstock_crc32c(const uint8_t *data, int64_t num, uint32_t value) { return penstock_update_crc32c(data, num, value); }

/* ---- frames -------------------------------------------------------------------------------------------------------------- */

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
