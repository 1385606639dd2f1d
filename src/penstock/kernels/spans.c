/* Spans of local files, a whole block with one call: sorted by file and offset, neighbours read together. See spans.py.
 *
 * Only regular files are read. No memory map of one is ever touched by this process's own instructions: a file that somebody cuts would end
 * it. Large ranges are read with pread. Of many small ones, at 1 us of system call each, the kernel makes one copy out of a map into a memfd
 * that `out` is a map of: pwritev of a list of addresses, which ends with EFAULT where the file has been cut. It takes 0.45 us a record of
 * 1 kB in any order, all of it in the kernel.
 */
#define _GNU_SOURCE
#include "penstock.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/uio.h>
#define WITH_MAPS 1
#define PREFETCH(address) __builtin_prefetch((address), 0, 2)
#else
#define WITH_MAPS 0
#endif

#if defined(__linux__) && defined(RWF_NOWAIT)
#pragma weak preadv2 /* of glibc 2.26 and musl 1.2.5: null before */
enum { LEAST = 8 };

/* Asks the system for all spans of files that are open, when some are not in memory: then they come together, and not one after the other.
 * Of `num` spans every `every`-th is looked at, about a microsecond each. Says whether one was missing. */
static int fetch_ahead(const int64_t *offsets, const int64_t *lengths, const int64_t *descriptors, int64_t num, int64_t every) {
    int missing = 0;
    for (int64_t row = 0; row < num && num >= LEAST && preadv2 && !missing; row += every) {
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
static int fetch_ahead(const int64_t *offsets, const int64_t *lengths, const int64_t *descriptors, int64_t num, int64_t every) {
    (void)offsets, (void)lengths, (void)descriptors, (void)num, (void)every;
    return 0;
}
#endif

enum { DONE, NOT_OPENED, NOT_KNOWN, NOT_READ, NOT_REGULAR, CHANGED, CUT, BAD_ROW, NO_ROOM };
enum { PROBLEM, FILE_NUMBER, ERROR, FOUND_SIZE, FOUND_TIME, FOUND_INODE, NUM_KEPT, NUM_BYTES, MISSING, NUM_FACTS };

#if !defined(_WIN32)

typedef struct {
    const int64_t *files, *offsets;
} rows;

INLINE int stands_behind(const rows *all, int64_t one, int64_t other) {
    if (all->files[one] != all->files[other]) return all->files[one] > all->files[other];
    return all->offsets[one] > all->offsets[other];
}

static int in_order(const rows *all, int64_t num) {
    int64_t row = 1;
    while (row < num && !stands_behind(all, row - 1, row)) row++;
    return row >= num;
}

/* Stable, O(n log n), one pass when the rows are in order already. `order` has room for 2 * num. Returns the half that holds the result. */
static const int64_t *sorted(const rows *all, int64_t num, int64_t *order) {
    int64_t *from = order, *to = order + num;
    for (int64_t row = 0; row < num; row++) from[row] = row;
    for (int64_t width = in_order(all, num) ? num : 1; width < num; width *= 2) {
        for (int64_t begin = 0; begin < num; begin += 2 * width) {
            const int64_t middle = num - begin < width ? num : begin + width;
            const int64_t end = num - begin < 2 * width ? num : begin + 2 * width;
            int64_t left = begin, right = middle;
            for (int64_t place = begin; place < end; place++)
                to[place] = left < middle && (right == end || !stands_behind(all, from[left], from[right])) ? from[left++] : from[right++];
        }
        int64_t *const swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static int64_t time_of(const struct stat *status) {
#if defined(__APPLE__)
    return (int64_t)((uint64_t)status->st_mtime * UINT64_C(1000000000) + (uint64_t)status->st_mtimensec);
#else
    return (int64_t)((uint64_t)status->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)status->st_mtim.tv_nsec);
#endif
}

/* Says whether an open file is the one that is known: regular, and of this size, time and inode. */
static int64_t looked_at(int descriptor, const int64_t *known, int64_t *facts) {
    struct stat status;
    if (fstat(descriptor, &status) != 0) {
        facts[ERROR] = errno;
        return NOT_KNOWN;
    }
    facts[FOUND_SIZE] = (int64_t)status.st_size;
    facts[FOUND_TIME] = time_of(&status);
    facts[FOUND_INODE] = (int64_t)status.st_ino;
    if (!S_ISREG(status.st_mode)) return NOT_REGULAR;
    return memcmp(known, facts + FOUND_SIZE, 3 * sizeof *known) == 0 ? DONE : CHANGED;
}

static int64_t read_range(int descriptor, unsigned char *out, int64_t offset, int64_t length, int64_t *facts) {
    while (length > 0) {
        const size_t most = length > INT64_C(0x40000000) ? (size_t)0x40000000 : (size_t)length;
        const ssize_t count = pread(descriptor, out, most, (off_t)offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) {
            facts[ERROR] = errno;
            return NOT_READ;
        }
        if (count == 0) {
            facts[FOUND_SIZE] = offset;
            return CUT;
        }
        out += count, offset += count, length -= count;
    }
    return DONE;
}

#if WITH_MAPS
enum { MOST_ADDRESSES = 256, MOST_BYTES = 131072, SMALL = 16384, FEW = 8 };

/* Where the rows of a block lie; see penstock_read_spans. */
typedef struct {
    const int64_t *files, *descriptors, *maps;
} homes;

/* Ranges that the kernel is to copy, in the order in which they lie in `out`, the row that each begins with, and its file, open. */
typedef struct {
    struct iovec ranges[MOST_ADDRESSES];
    int64_t rows[MOST_ADDRESSES];
    int descriptors[MOST_ADDRESSES];
    int num;
    int64_t begin, num_bytes;
} copies;

INLINE void add_range(copies *list, const homes *all, int64_t row, int descriptor, int64_t offset, int64_t length, int64_t used) {
    if (list->num == 0) list->begin = used;
    list->rows[list->num] = row;
    list->descriptors[list->num] = descriptor;
    list->ranges[list->num].iov_base = (void *)(uintptr_t)(all->maps[row] + offset);
    list->ranges[list->num++].iov_len = (size_t)length;
    list->num_bytes += length;
}

INLINE int is_full(const copies *list) { return list->num == MOST_ADDRESSES || list->num_bytes >= MOST_BYTES; }

static int64_t copied(copies *list, const homes *all, int sink, unsigned char *out, int64_t *facts) {
    int64_t problem = DONE, begin = list->begin;
    ssize_t count = -1;
    if (list->num >= FEW) {
        /* The kernel copies one range after the other and waits for each; asked for together, they come together. A prefetch of an address
         * that nothing stands behind does nothing. */
        for (int place = 0; place < list->num; place++) {
            const unsigned char *const from = (const unsigned char *)list->ranges[place].iov_base;
            for (size_t at = 0; at < list->ranges[place].iov_len; at += 64) PREFETCH(from + at);
        }
        count = pwritev(sink, list->ranges, list->num, (off_t)begin);
    }
    /* Interrupted, cut, or a page that cannot be read: pread says which. */
    for (int place = 0; count != (ssize_t)list->num_bytes && problem == DONE && place < list->num; place++) {
        const int64_t row = list->rows[place], offset = (int64_t)(uintptr_t)list->ranges[place].iov_base - all->maps[row];
        facts[FILE_NUMBER] = all->files[row];
        problem = read_range(list->descriptors[place], out + begin, offset, (int64_t)list->ranges[place].iov_len, facts);
        begin += (int64_t)list->ranges[place].iov_len;
    }
    list->num = 0, list->num_bytes = 0;
    return problem;
}

/* Looks at each of the files once. seen: `size` places, of which each is -1 or a row of the file that hashes to it or before it. */
static int64_t looked_at_all(const homes *all, const int64_t *known, const int64_t *seen, int64_t size, int64_t *facts) {
    int64_t problem = DONE;
    for (int64_t place = 0; place < size && problem == DONE; place++) {
        if (seen[place] < 0) continue;
        const int64_t file = facts[FILE_NUMBER] = all->files[seen[place]];
        problem = looked_at((int)all->descriptors[seen[place]], known + 3 * file, facts);
    }
    return problem;
}

/* Says whether a block is of many short spans in no order, all of them in maps: to sort them would only cost time. */
static int is_scattered(const homes *all, const int64_t *lengths, int64_t num, int64_t capacity) {
    for (int64_t row = 0; row < num; row++) {
        if (all->maps[row] == 0 || all->descriptors[row] < 0 || lengths[row] > SMALL || lengths[row] > capacity) return 0;
        capacity -= lengths[row];
    }
    return num >= FEW;
}

/* Copies such a block as it comes. work has room for 2 * num. */
static int64_t copy_scattered(const homes *all, const int64_t *known, const int64_t *offsets, const int64_t *lengths, int64_t num,
                              int64_t *work, int sink, unsigned char *out, int64_t *begins, int64_t *facts) {
    copies list;
    int64_t size = 1, used = 0;
    int bits = 0;
    for (; size <= num; bits++) size *= 2;
    memset(work, 0xFF, (size_t)size * sizeof *work);
    for (int64_t row = 0; row < num; row++) {
        uint64_t place = (uint64_t)all->files[row] * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits);
        while (work[place] >= 0 && all->files[work[place]] != all->files[row]) place = (place + 1) & (uint64_t)(size - 1);
        if (work[place] < 0) work[place] = row;
    }
    int64_t problem = DONE;
    list.num = 0, list.begin = 0, list.num_bytes = 0;
    for (int64_t row = 0; row < num && problem == DONE; row++) {
        begins[row] = used;
        add_range(&list, all, row, (int)all->descriptors[row], offsets[row], lengths[row], used);
        used += lengths[row];
        if (is_full(&list) || row + 1 == num) problem = copied(&list, all, sink, out, facts);
    }
    /* Behind the copy, for whatever happened up to then: a file that was changed, or cut, where a map gives zeros up to the end of its last page. */
    int64_t failed[NUM_FACTS];
    memcpy(failed, facts, sizeof failed);
    const int64_t changed = looked_at_all(all, known, work, size, facts);
    if (changed == DONE) memcpy(facts, failed, sizeof failed);
    else problem = changed;
    facts[NUM_BYTES] = used;
    return problem;
}
#endif

static int opened(const char *path, int64_t *facts) {
    int descriptor;
    do {
        descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) facts[ERROR] = errno;
    return descriptor;
}

#endif

/* See penstock_read_spans. */
static int64_t read_block(const char *paths, const int64_t *path_starts, const int64_t *known, int64_t num_files, const int64_t *files,
                          const int64_t *offsets, const int64_t *lengths, const int64_t *descriptors, int64_t num, int64_t gap,
                          int64_t *order, unsigned char *out, int64_t capacity, int64_t *begins, int64_t most_kept, int64_t *kept,
                          int64_t *facts, const int64_t *maps, int sink) {
#if !WITH_MAPS
    (void)maps, (void)sink;
#endif
#if defined(_WIN32)
    (void)paths, (void)path_starts, (void)known, (void)num_files, (void)files, (void)offsets, (void)lengths, (void)descriptors;
    (void)num, (void)gap, (void)order, (void)out, (void)capacity, (void)begins, (void)most_kept, (void)kept, (void)facts;
    return NOT_OPENED;
#else
    const rows all = {files, offsets};
    int64_t place = 0, used = 0, problem = DONE;
#if WITH_MAPS
    const homes where = {files, descriptors, maps};
    copies list;
    list.num = 0, list.begin = 0, list.num_bytes = 0;
#endif
    memset(facts, 0, NUM_FACTS * sizeof *facts);
    for (int64_t row = 0; row < num; row++) {
        const int64_t file = files[row];
        facts[FILE_NUMBER] = row;
        if (file < 0 || file >= num_files || offsets[row] < 0 || lengths[row] < 0 || offsets[row] > known[3 * file] - lengths[row])
            return BAD_ROW;
    }
#if WITH_MAPS
    if (maps != NULL && sink >= 0 && !in_order(&all, num) && is_scattered(&where, lengths, num, capacity))
        return copy_scattered(&where, known, offsets, lengths, num, order, sink, out, begins, facts);
#endif
    const int64_t *const ordered = sorted(&all, num, order);
    while (place < num && problem == DONE) {
        const int64_t file = files[ordered[place]];
        int descriptor = (int)descriptors[ordered[place]];
        const int own = descriptor < 0;
        facts[FILE_NUMBER] = file;
        if (own && (descriptor = opened(paths + path_starts[file], facts)) < 0) return NOT_OPENED;
        problem = looked_at(descriptor, known + 3 * file, facts);
        while (problem == DONE && place < num && files[ordered[place]] == file) {
            const int64_t low = offsets[ordered[place]];
            int64_t high = low, last = place;
            for (; last < num && files[ordered[last]] == file && offsets[ordered[last]] - high <= gap; last++) {
                const int64_t row = ordered[last], end = offsets[row] + lengths[row];
                high = end > high ? end : high;
                begins[row] = used + offsets[row] - low;
            }
            if (high - low > capacity - used) {
                problem = NO_ROOM;
                break;
            }
#if WITH_MAPS
            if (maps != NULL && sink >= 0 && maps[ordered[place]] != 0 && high - low <= SMALL) {
                add_range(&list, &where, ordered[place], descriptor, low, high - low, used);
                if (is_full(&list) || last == num || files[ordered[last]] != file) problem = copied(&list, &where, sink, out, facts);
            } else {
                if (list.num > 0) problem = copied(&list, &where, sink, out, facts);
                if (problem == DONE) problem = read_range(descriptor, out + used, low, high - low, facts);
            }
#else
            problem = read_range(descriptor, out + used, low, high - low, facts);
#endif
            used += high - low;
            place = last;
        }
#if WITH_MAPS
        /* A map of a file that was cut gives zeros up to the end of its last page. */
        if (problem == DONE && maps != NULL && sink >= 0 && maps[ordered[place - 1]] != 0)
            problem = looked_at(descriptor, known + 3 * file, facts);
#endif
        if (own && problem == DONE && facts[NUM_KEPT] < most_kept) {
            kept[2 * facts[NUM_KEPT]] = file;
            kept[2 * facts[NUM_KEPT] + 1] = descriptor;
            facts[NUM_KEPT]++;
        } else if (own) {
            close(descriptor);
        }
    }
    facts[NUM_BYTES] = used;
    return problem;
#endif
}

/* Reads `num` spans. Returns 0, or the number of a problem; facts[FILE_NUMBER] says of which file.
 *
 * known is [files, 3]: size, time and inode. descriptors is [num]: an open one of each row's file, or -1: then it is opened here. Of these
 * the first `most_kept` stay open and are told in kept, [most_kept, 2]: file, descriptor; also after a problem.
 *
 * maps is [num], the address of a map of all of each row's file or 0; sink a memfd whose beginning `out` is a map of; or NULL and -1.
 * every: see fetch_ahead; facts[MISSING] is what was found. */
API int64_t penstock_read_spans(const char *paths, const int64_t *path_starts, const int64_t *known, int64_t num_files,
                                const int64_t *files, const int64_t *offsets, const int64_t *lengths, const int64_t *descriptors,
                                int64_t num, int64_t gap, int64_t *order, unsigned char *out, int64_t capacity, int64_t *begins,
                                int64_t most_kept, int64_t *kept, int64_t *facts, const int64_t *maps, int sink, int64_t every) {
    const int missing = fetch_ahead(offsets, lengths, descriptors, num, every);
    const int64_t problem = read_block(paths, path_starts, known, num_files, files, offsets, lengths, descriptors, num, gap, order, out,
                                       capacity, begins, most_kept, kept, facts, maps, sink);
    facts[MISSING] = missing;
    return problem;
}

/* Takes spans that have been read, while they are in the cache: `num` of them, each inside `size` bytes at `data`. Returns how many of them were
 * good, from the first on. */
typedef int64_t (*taker)(int64_t *context, const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t num);

/* Reads spans as penstock_read_spans does, and gives them to a taker, the function at an address, piece by piece: at most `most_rows` and, unless
 * it is one alone, `most_bytes`. order has room for 2 * most_rows, begins for most_rows. Returns how many were taken; where that is less
 * than `num`, something is to be said about the next one, or it cannot be read. */
API int64_t penstock_stream_spans(const char *paths, const int64_t *path_starts, const int64_t *known, int64_t num_files,
                                  const int64_t *files, const int64_t *offsets, const int64_t *lengths, const int64_t *descriptors,
                                  int64_t num, int64_t gap, int64_t *order, unsigned char *out, int64_t capacity, int64_t *begins,
                                  int64_t most_kept, int64_t *kept, int64_t *facts, const int64_t *maps, int sink, int64_t every,
                                  int64_t most_rows, int64_t most_bytes, int64_t take, int64_t *context) {
    int64_t done = 0, num_kept = 0;
    const int missing = fetch_ahead(offsets, lengths, descriptors, num, every);
    while (done < num) {
        int64_t bytes = 0, rows = 0;
        while (rows < most_rows && done + rows < num) {
            const int64_t length = lengths[done + rows];
            if (length < 0 || (rows && length > most_bytes - bytes)) break; /* a bad length stops at the border of a piece */
            bytes = length > most_bytes ? most_bytes : bytes + length;
            rows++;
        }
        const int64_t problem =
            read_block(paths, path_starts, known, num_files, files + done, offsets + done, lengths + done, descriptors + done, rows, gap,
                                order, out, capacity, begins, most_kept - num_kept, kept + 2 * num_kept, facts, maps == NULL ? NULL : maps + done, sink);
        num_kept += facts[NUM_KEPT];
        if (rows == 0 || problem != DONE) break;
        const int64_t good = ((taker)(uintptr_t)take)(context, out, facts[NUM_BYTES], begins, lengths + done, rows);
        done += good;
        if (good < rows) break;
    }
    facts[NUM_KEPT] = num_kept;
    facts[MISSING] = missing;
    return done;
}

/* Maps all of an open file for penstock_read_spans; returns its address, or 0 when that cannot be done here. */
API int64_t penstock_map_file(int descriptor, int64_t size) {
#if WITH_MAPS
    if (size <= 0) return 0;
    void *const map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (map == MAP_FAILED) return 0;
    madvise(map, (size_t)size, MADV_RANDOM);
    return (int64_t)(intptr_t)map;
#else
    (void)descriptor, (void)size;
    return 0;
#endif
}

API void penstock_unmap_file(int64_t address, int64_t size) {
#if WITH_MAPS
    munmap((void *)(intptr_t)address, (size_t)size);
#else
    (void)address, (void)size;
#endif
}
