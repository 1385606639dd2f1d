/* Make the calls again that replay.py has recorded, with another build of the library, and compare every byte.
 *
 *     replay LIBRARY CALLS
 *
 * All arguments are whole numbers or addresses, so each is passed as one of eight bytes: right on x86-64 and on 64-bit ARM but for Apple's. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <windows.h>
static void *opened(const char *path) { return (void *)LoadLibraryA(path); }
static void *named(void *library, const char *name) { return (void *)(intptr_t)GetProcAddress((HMODULE)library, name); }
#else
#include <dlfcn.h>
static void *opened(const char *path) { return dlopen(path, RTLD_NOW); }
static void *named(void *library, const char *name) { return dlsym(library, name); }
#endif

enum { MOST = 14 };
typedef int64_t function(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                         int64_t);

int main(int count, char **words) {
    void *library = count == 3 ? opened(words[1]) : NULL;
    FILE *calls = count == 3 ? fopen(words[2], "rb") : NULL;
    char name[64], symbol[96], result[32], kind;
    int number, wrong = 0, done = 0;
    if (!library || !calls) {
        fprintf(stderr, "usage: replay LIBRARY CALLS; the %s could not be opened\n", library ? "calls" : "library");
        return 2;
    }
    while (fscanf(calls, "%63s %31s %d\n", name, result, &number) == 3) {
        int64_t given[MOST] = {0}, size[MOST] = {0};
        unsigned char *after[MOST] = {0};
        for (int place = 0; place < number; place++) {
            int64_t value;
            if (fscanf(calls, "%c %" SCNd64, &kind, &value) != 2 || fgetc(calls) != '\n') return 3;
            given[place] = value;
            if (kind == 'i') continue;
            unsigned char *memory = malloc((size_t)value + 64);
            after[place] = malloc((size_t)value + 1), size[place] = value;
            memory += -(uintptr_t)memory & 63; /* as far as NumPy's memory is aligned, and never freed: the program is short */
            if (fread(memory, 1, (size_t)value, calls) != (size_t)value || fread(after[place], 1, (size_t)value, calls) != (size_t)value) return 3;
            given[place] = (int64_t)(intptr_t)memory;
        }
        snprintf(symbol, sizeof symbol, "penstock_%s", name);
        function *called = (function *)(intptr_t)named(library, symbol);
        if (!called) {
            printf("%s is not in the library\n", symbol);
            return 1;
        }
        const int64_t got = called(given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7], given[8], given[9], given[10],
                                   given[11], given[12], given[13]);
        const int64_t wanted = strtoll(result, NULL, 10);
        int same = strcmp(result, "-") == 0 || wanted == (strcmp(name, "crc32c") == 0 ? (int64_t)(uint32_t)got : got);
        for (int place = 0; place < number; place++) same &= !after[place] || memcmp((void *)(intptr_t)given[place], after[place], (size_t)size[place]) == 0;
        if (!same) printf("%s gave something else in call %d\n", name, done + 1);
        wrong += !same, done++;
    }
    printf("%d calls, %d of them wrong\n", done, wrong);
    return wrong > 0 || done == 0;
}
