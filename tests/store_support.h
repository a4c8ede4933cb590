/* store_support.h: shard stores for tests, of tiny models and shards of random bytes. */
#ifndef VTI_TEST_STORE_SUPPORT_H
#define VTI_TEST_STORE_SUPPORT_H

#include "../src/pack.h"
#include "../src/store.h"
#include "model_builder.h"

/* A model's directory with a source that makes up its shards: any form, bytes from a seed. */
typedef struct test_source {
    unsigned char *file;
    vt_gguf *gguf;
    vti_geometry geometry;
    vti_kernels kernels;
    vti_model_identity identity;
    vti_shard_source source;
    uint32_t offered;  /* bits 1 << vti_precision */
    uint32_t broken_unit; /* its shards cannot be loaded; UINT32_MAX: none */
} test_source;

void test_source_open(test_source *source, const char *arch, uint32_t layers);
void test_source_open_model(test_source *source, const test_model *model);
void test_source_close(test_source *source);

/* vti_pack with `threads` into `path`; the test fails if it does. */
void test_store_write(test_source *source, const char *path, uint32_t threads);

/* Makes the checksums of index and header right again. */
void test_store_seal(unsigned char *file);

/* A path in a folder of this test program, which test_store_tear_down removes. Valid for a few
 * calls. */
const char *test_store_path(const char *name);
int test_store_set_up(void **state);
int test_store_tear_down(void **state);

void test_store_write_file(const char *path, const void *data, size_t bytes);

/* Files in the folder. */
unsigned test_store_files(void);

#endif
