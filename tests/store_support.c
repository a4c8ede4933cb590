#include "store_support.h"
#include "../src/tensor_source.h"

#include "support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/little_endian.h"

static char folder[256];

int test_store_set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/voltron-store-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

int test_store_tear_down(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : -1;
}

const char *test_store_path(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

unsigned test_store_files(void)
{
    unsigned count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

void test_store_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* --- source ------------------------------------------------------------------------------------ */

/* A tied output matrix is the embedding. */
static bool has_tensor(const test_source *t, uint32_t unit, vti_role role)
{
    char name[96];
    vti_tensor_name(role, vti_unit_layer(unit), name, sizeof name);
    return role == VTI_OUTPUT || vti_gguf_find_tensor(t->gguf, name);
}

static bool form_of(void *self, vti_shard_id id, vti_shard_form *out)
{
    static const uint8_t types[] = {VTI_F16, VTI_Q8_0, VTI_Q4_K};
    test_source *t = self;
    vti_piece pieces[VTI_PIECES];
    bool shared = id.shard == vti_unit_shards(&t->geometry, id.unit);
    if (id.unit == vti_embed_unit(&t->geometry)) return false;
    if (!shared && !(t->offered & 1u << id.precision)) return false;
    *out = (vti_shard_form){.precision = id.precision};
    vti_shard_pieces(&t->geometry, id.unit, id.shard, false, pieces);
    for (unsigned i = 0; i < VTI_PIECES; i++)
        out->type[i] = pieces[i].rows == 0 || !has_tensor(t, id.unit, pieces[i].role)
                           ? VTI_PIECE_ABSENT
                       : vti_role_is_vector(pieces[i].role) || shared ? VTI_F32
                                                                      : types[id.precision];
    return true;
}

static vt_status load(void *self, vti_shard_id id, void *memory, vt_error *err)
{
    test_source *t = self;
    vti_shard_form form;
    vti_shard_layout layout;
    if (id.unit == t->broken_unit) return vti_fail(err, VT_ERR_FORMAT, "this unit is broken");
    if (!form_of(self, id, &form) ||
        !vti_shard_lay_out(&t->geometry, &t->kernels, id.unit, id.shard, &form, &layout))
        return vti_fail(err, VT_ERR_INTERNAL, "there is no such shard");
    test_random random = {(uint64_t)id.unit << 32 ^ (uint64_t)id.shard << 8 ^ id.precision ^ 77};
    unsigned char *bytes = memory;
    /* Odd bytes of few values, as those of halves, so that some frames are compressed. */
    for (uint64_t i = 0; i < layout.bytes; i++) {
        uint64_t value = test_random_u64(&random);
        bytes[i] = (unsigned char)(i % 2 && form.type[0] == VTI_F16 ? value % 11 : value);
    }
    return VT_OK;
}

void test_source_open(test_source *t, const char *arch, uint32_t layers)
{
    test_model model = test_model_of(arch);
    model.layers = layers;
    test_source_open_model(t, &model);
}

void test_source_open_model(test_source *t, const test_model *model)
{
    vti_hparams hparams;
    size_t bytes;
    memset(t, 0, sizeof *t);
    t->file = test_model_build(model, &bytes);
    assert_int_equal(vti_gguf_open_memory(t->file, bytes, "model", &t->gguf, NULL), VT_OK);
    assert_int_equal(vti_hparams_read(t->gguf, &hparams, NULL), VT_OK);
    vti_geometry_init(&t->geometry, &hparams, false);
    vti_kernels_init(&t->kernels, VTI_CPU_EXACT);
    vti_model_identity_of(t->gguf, &t->identity);
    t->offered = 7;
    t->broken_unit = UINT32_MAX;
    t->source = (vti_shard_source){&t->geometry, &t->kernels, "model", t, form_of, load};
}

void test_source_close(test_source *t)
{
    vt_gguf_close(t->gguf);
    free(t->file);
}

void test_store_write(test_source *t, const char *path, uint32_t threads)
{
    vt_error err = {.message = ""};
    vt_pack_params params = vt_pack_params_default();
    params.threads = threads;
    vt_status status = vti_pack(&t->source, t->gguf, &t->identity, path, &params, &err);
    if (status != VT_OK) fail_msg("%s", err.message);
}

void test_store_seal(unsigned char *file)
{
    uint64_t directory = vti_load_u64(file + VTI_STORE_AT_DIRECTORY_BYTES);
    uint64_t entries = vti_load_u64(file + VTI_STORE_AT_ENTRY_COUNT);
    vti_stored_hash(file + VTI_STORE_HEADER_BYTES, directory, file + VTI_STORE_AT_DIRECTORY_HASH);
    vti_stored_hash(file + vti_store_index_offset(directory), entries * VTI_STORE_ENTRY_BYTES,
                    file + VTI_STORE_AT_INDEX_HASH);
    vti_stored_hash(file, VTI_STORE_AT_HASH, file + VTI_STORE_AT_HASH);
}
