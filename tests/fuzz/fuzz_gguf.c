/* fuzz_gguf.c: any bytes as a GGUF file. */
#include "gguf_exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* The reader wants 32-byte alignment; an exact size lets ASan see reads past the end. */
    void *copy = NULL;
    if (posix_memalign(&copy, 32, bytes) != 0) return 0;
    if (bytes > 0) memcpy(copy, data, bytes);
    vt_error err;
    gguf_exercise_memory(copy, bytes, &err);
    free(copy);
    return 0;
}
