#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *test_shared_path(const char *relative)
{
    /* Chained, so that the leak checker still sees them at the end. */
    static struct kept_path {
        struct kept_path *next;
        char text[4096];
    } *kept;
    struct kept_path *path = malloc(sizeof *path);
    if (!path) abort();
    snprintf(path->text, sizeof path->text, "../shared/%s", relative);
    path->next = kept;
    kept = path;
    if (access(path->text, R_OK) == 0) return path->text;
    printf("NOTICE skipped: %s is not there\n", path->text);
    return NULL;
}

unsigned char *test_read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    unsigned char *data = malloc((size_t)size + 1);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size)
        fail_msg("cannot read %s", path);
    fclose(file);
    data[size] = 0;
    if (bytes) *bytes = (size_t)size;
    return data;
}

const char *test_bin_folder(void)
{
    const char *folder = getenv("VOLTRON_BIN");
    return folder ? folder : "build";
}

const char *test_runner(void)
{
    const char *runner = getenv("VOLTRON_RUNNER");
    return runner ? runner : "";
}

bool test_is_emulated(void) { return test_runner()[0] != 0; }

uint64_t test_random_u64(test_random *random)
{
    uint64_t x = random->state ? random->state : 0x9E3779B97F4A7C15u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random->state = x;
    return x * 0x2545F4914F6CDD1Du;
}

float test_random_float(test_random *random, float low, float high)
{
    float unit = (float)(test_random_u64(random) >> 40) * (1.0f / 16777216.0f);
    return low + (high - low) * unit;
}
