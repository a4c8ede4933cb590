/* support.h: what the test programs share. */
#ifndef VTI_TEST_SUPPORT_H
#define VTI_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Path of a file under ../shared ("golden/t-qwen2.gguf"), or NULL with one printed line
 * ("NOTICE …") where the folder is not there: the test then calls skip(). Static buffer per call
 * site is not needed: the result is allocated and lives until the process ends. */
const char *test_shared_path(const char *relative);

/* Reads a whole file; malloc'd, NUL after the last byte. Fails the test if it cannot. */
unsigned char *test_read_file(const char *path, size_t *bytes);

/* Where voltron-run and the test programs were built (VOLTRON_BIN). */
const char *test_bin_folder(void);

/* What programs are run with (VOLTRON_RUNNER), an emulator; "" natively. */
const char *test_runner(void);

/* Everything takes some twenty times as long: a part of the cases has to do. */
bool test_is_emulated(void);

/* A small repeatable random generator (xorshift64*). Print the seed when a test fails. */
typedef struct test_random {
    uint64_t state;
} test_random;
uint64_t test_random_u64(test_random *random);
float test_random_float(test_random *random, float low, float high);

#endif
