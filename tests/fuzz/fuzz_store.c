/* fuzz_store.c: any shard store. The first byte says what the rest is:
 *   0: a file as it is
 *   1: a file whose header, directory and index get right checksums
 * Ends the process where reading breaks a promise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/little_endian.h"
#include "../../src/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_store: broken promise: %s\n", what);
    abort();
}

static void seal(uint8_t *file, size_t bytes)
{
    if (bytes < VTI_STORE_HEADER_BYTES) return;
    vti_put_u64(file + VTI_STORE_AT_FILE_BYTES, bytes);
    uint64_t directory = vti_load_u64(file + VTI_STORE_AT_DIRECTORY_BYTES);
    uint64_t entries = vti_load_u64(file + VTI_STORE_AT_ENTRY_COUNT);
    if (directory <= bytes && entries <= bytes / VTI_STORE_ENTRY_BYTES &&
        vti_store_data_offset(directory, entries) <= bytes) {
        vti_stored_hash(file + VTI_STORE_HEADER_BYTES, directory,
                        file + VTI_STORE_AT_DIRECTORY_HASH);
        vti_stored_hash(file + vti_store_index_offset(directory), entries * VTI_STORE_ENTRY_BYTES,
                        file + VTI_STORE_AT_INDEX_HASH);
    }
    vti_stored_hash(file, VTI_STORE_AT_HASH, file + VTI_STORE_AT_HASH);
}

static void load(const vti_shard_source *source, vti_shard_id id)
{
    vti_shard_form form;
    vti_shard_layout layout;
    vt_error err = {.message = ""};
    if (!source->form(source->self, id, &form)) return;
    require(vti_shard_lay_out(source->geometry, source->kernels, id.unit, id.shard, &form, &layout),
            "what is offered has a layout");
    void *memory = malloc((size_t)layout.bytes);
    if (!memory) return;
    vt_status status = source->load(source->self, id, memory, &err);
    require(status == VT_OK || err.message[0], "an error has a message");
    free(memory);
}

static void use(vt_store *store)
{
    const vti_shard_source *source = vti_store_source(store);
    const vti_geometry *g = source->geometry;
    vt_store_info info;
    vt_store_unit unit;
    vt_pack_params params = vt_pack_params_default();
    vt_error err = {.message = ""};
    params.threads = 1;
    vt_store_get_info(store, &info);
    for (uint32_t i = 0; i < info.units; i++) {
        require(vt_store_get_unit(store, i, &unit) == VT_OK && unit.name[0], "units have names");
        for (uint32_t shard = 0; shard <= vti_unit_shards(g, i); shard++)
            for (int p = 0; p < VTI_PRECISION_COUNT; p++)
                load(source, (vti_shard_id){i, shard, (vti_precision)p});
    }
    const vti_gguf_tensor *rows = vti_gguf_find_tensor(vt_store_gguf(store), "token_embd.weight");
    require(rows && rows->data, "the embedding is there");
    volatile unsigned char read;
    for (uint64_t i = 0; i < rows->size_bytes; i++) read = ((const unsigned char *)rows->data)[i];
    (void)read;
    vt_status status = vt_store_verify(store, &params, &err);
    require(status == VT_OK || err.message[0], "an error has a message");
}

/* The file is what a path of /proc leads to: nothing goes to a disk. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    vt_store *store;
    vt_error err = {.message = ""};
    if (bytes < 2) return 0;
    uint8_t *file = malloc(bytes - 1);
    require(file != NULL, "memory");
    memcpy(file, data + 1, bytes - 1);
    if (data[0]) seal(file, bytes - 1);
    int memory = memfd_create("store", MFD_CLOEXEC);
    require(memory >= 0 && write(memory, file, bytes - 1) == (ssize_t)(bytes - 1), "a file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    vt_status status = vt_store_open(path, &store, &err);
    require((status == VT_OK) == (store != NULL), "a store, or none");
    require(status == VT_OK || err.message[0], "an error has a message");
    if (store) use(store);
    vt_store_close(store);
    close(memory);
    free(file);
    return 0;
}
