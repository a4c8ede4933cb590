/* replay.h: runs a fuzz target over files, without a fuzzer. A regression test is
 *
 *     #include "fuzz/fuzz_NAME.c"
 *     #include "fuzz/replay.h"
 *     static void corpus_runs(void **state) { assert_int_not_equal(fuzz_replay("NAME"), 0); }
 */
#ifndef VTI_FUZZ_REPLAY_H
#define VTI_FUZZ_REPLAY_H

#include "../support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void fuzz_replay_file(const char *path)
{
    size_t bytes;
    unsigned char *data = test_read_file(path, &bytes);
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
}

/* Every file of tests/fuzz/corpus/NAME. Returns how many. */
static inline int fuzz_replay(const char *name)
{
    char folder[256];
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    DIR *listing = opendir(folder);
    if (!listing) fail_msg("cannot open %s", folder);
    int count = 0;
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        if (item->d_name[0] == '.') continue;
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
        fuzz_replay_file(path);
        count++;
    }
    closedir(listing);
    return count;
}

#endif
