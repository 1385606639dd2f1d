/* What stands where: the keyed permutation, the random numbers of an element, which child of a mix an element comes from, and which row of a
 * packing it goes to.
 *
 * The twins are in checked.py.
 */
#include "penstock.h"

/* ---- keyed permutation ------------------------------------------------------------------------------------------- */

enum { ROUNDS = 10, SMALL = 256, BLOCK = 64 };

static uint64_t finish(uint64_t value) {
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

static uint64_t word_of(uint64_t seed, uint64_t place) { return finish(seed + UINT64_C(0x9E3779B97F4A7C15) * (place + 1)); }

/* High 64 bits of value * factor with factor < 2^32, in halves so that it needs no 128-bit type. */
static uint64_t scaled(uint64_t value, uint64_t factor) {
    return ((value >> 32) * factor + (((value & UINT64_C(0xFFFFFFFF)) * factor) >> 32)) >> 32;
}

INLINE uint64_t scramble(uint64_t word, uint64_t key) {
    uint64_t mixed = (word ^ key) * UINT64_C(0xD6E8FEB86659FD93);
    mixed ^= mixed >> 32;
    mixed *= UINT64_C(0xA0761D6478BD642F);
    return mixed >> 32;
}

typedef struct {
    uint64_t num_elements, num_left, right_mask;
    int right_bits;
    uint64_t keys[ROUNDS];
} network;

INLINE uint64_t feistel(uint64_t cell, const network *net) {
    uint64_t left = cell >> net->right_bits, right = cell & net->right_mask;
    const uint64_t size = net->num_left;
    const int drop = 32 - net->right_bits;
    for (int turn = 0; turn < ROUNDS; turn += 2) {
        left += (scramble(right, net->keys[turn]) * size) >> 32;
        left -= left >= size ? size : 0;
        right ^= scramble(left, net->keys[turn + 1]) >> drop;
    }
    return (left << net->right_bits) | right;
}

/* Returns how many of the positions are out of range (all are computed: no memory depends on them). */
INLINE uint64_t feistel_block(const int64_t *positions, int64_t num, const network *net, uint64_t *cells, uint64_t *beyond) {
    uint64_t bad = 0, over = 0;
    for (int64_t row = 0; row < num; row++) {
        const uint64_t position = (uint64_t)positions[row];
        const uint64_t cell = feistel(position, net);
        bad |= position >= net->num_elements;
        over |= cell >= net->num_elements;
        cells[row] = cell;
    }
    *beyond = over;
    return bad;
}

typedef uint64_t (*block_function)(const int64_t *, int64_t, const network *, uint64_t *, uint64_t *);

static uint64_t block_plain(const int64_t *positions, int64_t num, const network *net, uint64_t *cells, uint64_t *beyond) {
    return feistel_block(positions, num, net, cells, beyond);
}

#if WITH_X86
AVX2 static uint64_t block_avx2(const int64_t *positions, int64_t num, const network *net, uint64_t *cells, uint64_t *beyond) {
    return feistel_block(positions, num, net, cells, beyond);
}

AVX512 static uint64_t block_avx512(const int64_t *positions, int64_t num, const network *net, uint64_t *cells, uint64_t *beyond) {
    return feistel_block(positions, num, net, cells, beyond);
}
#endif

static int64_t first_outside(const int64_t *positions, int64_t from, int64_t num, uint64_t num_elements) {
    for (int64_t row = from; row < num; row++)
        if ((uint64_t)positions[row] >= num_elements) return row;
    return -1;
}

/* Fisher-Yates into a table, then look up: each of the n! orders is equally likely. */
static int64_t permute_small(const int64_t *positions, int64_t num, uint64_t num_elements, uint64_t seed, int64_t *out) {
    uint8_t table[SMALL];
    for (uint64_t place = 0; place < num_elements; place++) table[place] = (uint8_t)place;
    for (uint64_t last = num_elements - 1, step = 0; last > 0; last--, step++) {
        const uint64_t other = scaled(word_of(seed, step), last + 1);
        const uint8_t kept = table[last];
        table[last] = table[other];
        table[other] = kept;
    }
    for (int64_t row = 0; row < num; row++) {
        if ((uint64_t)positions[row] >= num_elements) return row;
        out[row] = table[positions[row]];
    }
    return -1;
}

/* out[i] = where the permutation of 0..num_elements-1 sends positions[i]; returns -1, or the first row that is out of range. */
API int64_t penstock_permute(const int64_t *positions, int64_t num, uint64_t num_elements, uint64_t key, int64_t *out) {
    const uint64_t seed = finish(key + finish(num_elements));
    if (num_elements <= SMALL) return permute_small(positions, num, num_elements, seed, out);
    network net = {.num_elements = num_elements};
    int bits = 0;
    while (bits < 63 && ((num_elements - 1) >> bits) != 0) bits++;
    net.right_bits = (bits + 1) / 2;
    net.right_mask = (UINT64_C(1) << net.right_bits) - 1;
    net.num_left = (num_elements + net.right_mask) >> net.right_bits;
    for (int turn = 0; turn < ROUNDS; turn++) net.keys[turn] = word_of(seed, (uint64_t)turn);
    block_function block = block_plain;
#if WITH_X86
    if (has_avx512()) block = block_avx512;
    else if (has_avx2()) block = block_avx2;
#endif
    uint64_t cells[BLOCK], beyond;
    for (int64_t from = 0; from < num; from += BLOCK) {
        const int64_t count = num - from < BLOCK ? num - from : BLOCK;
        if (block(positions + from, count, &net, cells, &beyond)) return first_outside(positions, from, num, num_elements);
        if (beyond)
            for (int64_t row = 0; row < count; row++)
                while (cells[row] >= num_elements) cells[row] = feistel(cells[row], &net);
        memcpy(out + from, cells, (size_t)count * sizeof(int64_t));
    }
    return -1;
}

/* ---- Philox4x64-10 ----------------------------------------------------------------------------------------------- */

INLINE uint64_t multiply(uint64_t left, uint64_t right, uint64_t *high) {
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 wide;
    const wide product = (wide)left * right;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
#else
    const uint64_t low32 = UINT64_C(0xFFFFFFFF);
    const uint64_t middle = (left >> 32) * (right & low32) + (((left & low32) * (right & low32)) >> 32);
    const uint64_t other = (left & low32) * (right >> 32) + (middle & low32);
    *high = (left >> 32) * (right >> 32) + (middle >> 32) + (other >> 32);
    return left * right;
#endif
}

static void philox(uint64_t word[4], uint64_t key0, uint64_t key1) {
    for (int turn = 0; turn < 10; turn++) {
        uint64_t high0, high1;
        const uint64_t low0 = multiply(word[0], UINT64_C(0xD2E7470EE14C6C93), &high0);
        const uint64_t low1 = multiply(word[2], UINT64_C(0xCA5A826395121157), &high1);
        word[0] = high1 ^ word[1] ^ key0;
        word[2] = high0 ^ word[3] ^ key1;
        word[1] = low1;
        word[3] = low0;
        key0 += UINT64_C(0x9E3779B97F4A7C15);
        key1 += UINT64_C(0xBB67AE8584CAA73B);
    }
}

/* out[i] = the first num_draws doubles of the generator with key (key0, key1) and counter (0, lane, index, epoch). */
API void penstock_philox_uniform(uint64_t key0, uint64_t key1, const int64_t *epochs, const int64_t *indices, const uint64_t *lanes,
                                 int64_t num, int64_t num_draws, double *out) {
    for (int64_t row = 0; row < num; row++) {
        for (int64_t from = 0; from < num_draws; from += 4) {
            /* NumPy counts before it draws: the first block of counter 0 is number 1. */
            uint64_t word[4] = {(uint64_t)(from / 4) + 1, lanes[row], (uint64_t)indices[row], (uint64_t)epochs[row]};
            philox(word, key0, key1);
            const int64_t count = num_draws - from < 4 ? num_draws - from : 4;
            for (int64_t draw = 0; draw < count; draw++) *out++ = (double)(word[draw] >> 11) * (1.0 / 9007199254740992.0);
        }
    }
}

/* ---- which child of a mix an element comes from ------------------------------------------------------------------------ */

enum { IN_STEP = 8 };

/* Sends IN_STEP positions down together, each in its own path: one has to wait for every product on its way, several do not. */
INLINE void go_down(const int64_t *positions, const uint64_t *shares, const int64_t *sides, int64_t num_nodes, int64_t *owners, int64_t *own) {
    const uint64_t half = UINT64_C(1) << 62, below = (UINT64_C(1) << 63) - 1;
    int64_t node[IN_STEP], inside = num_nodes > 0;
    uint64_t place[IN_STEP];
    for (int one = 0; one < IN_STEP; one++) {
        node[one] = inside - 1;
        place[one] = (uint64_t)positions[one];
    }
    while (inside) {
        inside = 0;
        for (int one = 0; one < IN_STEP; one++) {
            const int arrived = node[one] < 0;
            const int64_t at = arrived ? 0 : node[one];
            const uint64_t share = shares[at];
            uint64_t high;
            const uint64_t low = multiply(place[one], share, &high), rounded = low + half;
            high += rounded < low;
            const uint64_t before = high << 1 | rounded >> 63;
            const uint64_t left = ((rounded & below) + share) >> 63; /* `before` grows by one behind this element */
            const uint64_t there = left ? before : place[one] - before;
            const int64_t side = sides[2 * at + 1 - (int64_t)left];
            place[one] = arrived ? place[one] : there;
            node[one] = arrived ? node[one] : side;
            inside |= node[one] >= 0;
        }
    }
    for (int one = 0; one < IN_STEP; one++) {
        owners[one] = ~node[one];
        own[one] = (int64_t)place[one];
    }
}

/* Sends each position down a tree of shares (of 2^63): of the first x elements that pass a node, floor(x * share / 2^63 + 1/2) go left.
 *
 * sides[2 * node] is the left side of a node, sides[2 * node + 1] the right one: the number of a later node, or ~child. Node 0 is the root.
 * out holds 4 * num numbers: the rows in the order of their children, and the places that they have there; the child of each row, and
 * its place. starts (num_children + 1 numbers) says where each child's rows begin in them. Where starts is NULL, out holds the last
 * 2 * num of these alone.
 * Returns -1; the first row whose position is negative; or -2 - node for the first node that is none. Nothing is of use then. */
API int64_t penstock_deal(const int64_t *positions, int64_t num, const uint64_t *shares, const int64_t *sides, int64_t num_nodes,
                          int64_t num_children, int64_t *out, int64_t *starts) {
    int64_t *rows = out, *places = out + num, *owners = starts ? out + 2 * num : out, *own = owners + num, row = 0;
    for (int64_t node = 0; node < num_nodes; node++) {
        int good = shares[node] >> 63 == 0;
        for (int64_t side = 2 * node; side < 2 * node + 2; side++) {
            /* Later nodes only: every way down ends. */
            if (sides[side] >= 0) good &= sides[side] > node && sides[side] < num_nodes;
            else good &= ~sides[side] < num_children;
        }
        if (!good) return -2 - node;
    }
    for (row = 0; row < num; row++)
        if (positions[row] < 0) return row;
    for (row = 0; row + IN_STEP <= num; row += IN_STEP) go_down(positions + row, shares, sides, num_nodes, owners + row, own + row);
    if (row < num) {
        int64_t last[3 * IN_STEP] = {0};
        const size_t size = (size_t)(num - row) * sizeof(int64_t);
        memcpy(last, positions + row, size);
        go_down(last, shares, sides, num_nodes, last + IN_STEP, last + 2 * IN_STEP);
        memcpy(owners + row, last + IN_STEP, size);
        memcpy(own + row, last + 2 * IN_STEP, size);
    }
    if (starts == NULL) return -1;
    memset(starts, 0, (size_t)(num_children + 1) * sizeof(int64_t));
    for (row = 0; row < num; row++) starts[owners[row] + 1]++;
    for (int64_t child = 0; child < num_children; child++) starts[child + 1] += starts[child];
    for (row = 0; row < num; row++) {
        const int64_t spot = starts[owners[row]]++;
        rows[spot] = row;
        places[spot] = own[row];
    }
    memmove(starts + 1, starts, (size_t)num_children * sizeof(int64_t)); /* each has moved on to where the next one begins */
    starts[0] = 0;
    return -1;
}

/* ---- which row of a packing an element goes to: the fullest that has room, the largest element first ---------------------- */

enum { DIGIT = 12, DIGITS = 1 << DIGIT, MOST_LEVELS = 5 };

/* Sorts what has a size in its upper 32 bits by one digit of these, the largest first, equal ones in their order. */
static void sort_by_digit(const int64_t *from, int64_t num, int shift, int64_t *to) {
    uint32_t starts[DIGITS] = {0}, sum = 0;
    for (int64_t row = 0; row < num; row++) starts[from[row] >> shift & (DIGITS - 1)]++;
    for (int digit = DIGITS - 1; digit >= 0; digit--) {
        const uint32_t count = starts[digit];
        starts[digit] = sum;
        sum += count;
    }
    for (int64_t row = 0; row < num; row++) to[starts[from[row] >> shift & (DIGITS - 1)]++] = from[row];
}

/* The rooms that some row has: a bit for each room, above these a bit for each word that is not 0, and so on up to a single word. */
typedef struct {
    uint64_t *words[MOST_LEVELS];
    int num_levels;
} room_set;

/* The smallest room in the set from this one on, or -1. A level has one word more than those below it fill: its last bits are never set. */
INLINE int64_t next_room(const room_set *set, int64_t room) {
    for (int level = 0; level < set->num_levels; level++) {
        const uint64_t rest = set->words[level][room >> 6] >> (room & 63);
        if (rest) {
            room += lowest(rest);
            while (level-- > 0) room = room << 6 | lowest(set->words[level][room]);
            return room;
        }
        room = (room >> 6) + 1;
    }
    return -1;
}

/* Returns whether the room was in the set before. */
INLINE int add_room(const room_set *set, int64_t room) {
    const int there = set->words[0][room >> 6] >> (room & 63) & 1;
    for (int level = 0, filled = 0; level < set->num_levels && !filled; level++, room >>= 6) {
        uint64_t *word = set->words[level] + (room >> 6);
        filled = *word != 0;
        *word |= UINT64_C(1) << (room & 63);
    }
    return there;
}

INLINE void drop_room(const room_set *set, int64_t room) {
    for (int level = 0; level < set->num_levels; level++, room >>= 6)
        if (set->words[level][room >> 6] &= ~(UINT64_C(1) << (room & 63))) return;
}

/* Says for each size, 1..capacity, which row it goes to: the largest goes first, equal ones in their order, each to the row with the least
 * room that is enough; of several the one that came to this room last. out: [num].
 *
 * num is below 2^31, capacity in 1..2^24-1. sorted: [num], rows: int32 [num + capacity + 1], both to work in. bits: zeros, of
 * capacity / 63 + 6 words.
 * Returns -1, or the first element whose size is out of range: nothing is of use then. */
API int64_t penstock_best_fit(const int64_t *sizes, int64_t num, int64_t capacity, int64_t *sorted, int32_t *rows, uint64_t *bits,
                              int64_t *out) {
    int32_t *below = rows, *tops = rows + num; /* of each row the next one with its room; of each room in the set its last row */
    int32_t num_rows = 0;
    room_set set = {.num_levels = 0};
    for (int64_t words = capacity + 1; set.num_levels == 0 || words > 1; bits += words) {
        words = words / 64 + 1;
        set.words[set.num_levels++] = bits;
    }
    for (int64_t place = 0; place < num; place++) {
        if ((uint64_t)sizes[place] - 1 >= (uint64_t)capacity) return place;
        sorted[place] = (int64_t)((uint64_t)sizes[place] << 32) | place;
    }
    sort_by_digit(sorted, num, 32, out);
    sort_by_digit(out, num, 32 + DIGIT, sorted);
    for (int64_t place = 0; place < num;) {
        const int64_t size = sorted[place] >> 32;
        int64_t room = next_room(&set, size);
        int32_t row;
        if (room < 0) {
            row = num_rows++;
            room = capacity;
        } else {
            row = tops[room];
            tops[room] = below[row];
            if (below[row] < 0) drop_room(&set, room);
        }
        do { /* behind the first of a size, this row is the fullest that has room for the next one */
            out[(uint32_t)sorted[place++]] = row;
            room -= size;
        } while (room >= size && place < num && sorted[place] >> 32 == size);
        if (room > 0) {
            below[row] = add_room(&set, room) ? tops[room] : -1;
            tops[room] = row;
        }
    }
    return -1;
}
