/* store_load.c: shards of a store into memory. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "store_internal.h"

/* --- decoders ---------------------------------------------------------------------------------- */

vti_block_decoder *vti_store_take_decoder(vt_store *s)
{
    vti_block_decoder *decoder = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->idle_count) decoder = s->idle[--s->idle_count];
    pthread_mutex_unlock(&s->lock);
    return decoder ? decoder : vti_block_decoder_open();
}

void vti_store_give_decoder(vt_store *s, vti_block_decoder *decoder)
{
    pthread_mutex_lock(&s->lock);
    if (s->idle_count < VTI_STORE_IDLE_DECODERS) {
        s->idle[s->idle_count++] = decoder;
        decoder = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    vti_block_decoder_close(decoder);
}

/* --- reading ----------------------------------------------------------------------------------- */

typedef struct reader {
    const vt_store *store;
    uint64_t offset;
} reader;

/* Not through the mapping: a medium that fails gives an error instead of a signal, and pages of a
 * file that were read do not count as this process's memory. */
static vt_status read_next(void *context, void *to, size_t bytes, vt_error *err)
{
    reader *r = context;
    unsigned char *at = to;
    while (bytes) {
        ssize_t got = pread(r->store->descriptor, at, bytes, (off_t)r->offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return vti_fail(err, VT_ERR_IO, "cannot read %s: %s", r->store->name, strerror(errno));
        if (got == 0)
            return vti_fail(err, VT_ERR_IO, "%s became shorter while it was open", r->store->name);
        at += got;
        r->offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return VT_OK;
}

vt_status vti_store_read_block(const vt_store *s, const vti_store_entry *entry, void *block,
                               vt_error *err)
{
    reader r = {s, entry->offset};
    return read_next(&r, block, (size_t)entry->stored_bytes, err);
}

static vt_status decode(vt_store *s, const vti_store_entry *entry, void *memory, vt_error *err)
{
    vti_shard_layout layout;
    vt_error why = {.status = VT_OK};
    char name[64];
    reader r = {s, entry->offset};
    vti_block_decoder *decoder = vti_store_take_decoder(s);
    if (!decoder) return vti_fail(err, VT_ERR_MEMORY, "no memory to read %s", s->name);
    vti_store_lay_out(s, entry, &layout);
    vt_status status = vti_block_decode(decoder, &layout, read_next, &r, entry->stored_bytes,
                                        memory, &why);
    vti_store_give_decoder(s, decoder);
    if (status == VT_OK) return VT_OK;
    if (status != VT_ERR_FORMAT) return vti_fail(err, status, "%s", why.message);
    vti_store_entry_name(&s->geometry, entry, name, sizeof name);
    return vti_store_damaged(s, err, "%s: %s", name, why.message);
}

/* --- source ------------------------------------------------------------------------------------ */

static bool find_form(void *self, vti_shard_id id, vti_shard_form *out)
{
    const vti_store_entry *entry = vti_store_find(self, id);
    if (!entry || entry->encoding != VTI_STORE_BLOCK) return false;
    *out = entry->form;
    out->precision = id.precision;
    return true;
}

static vt_status load(void *self, vti_shard_id id, void *memory, vt_error *err)
{
    vt_store *s = self;
    char name[64];
    const vti_store_entry *entry = vti_store_find(s, id);
    if (entry && entry->encoding == VTI_STORE_BLOCK) return decode(s, entry, memory, err);
    vti_store_entry wanted = {.unit = id.unit, .shard = id.shard, .precision = id.precision};
    vti_store_entry_name(&s->geometry, &wanted, name, sizeof name);
    return vti_fail(err, VT_ERR_ARGUMENT, "%s does not have %s", s->name, name);
}

void vti_store_open_source(vt_store *s)
{
    s->source = (vti_shard_source){
        .geometry = &s->geometry,
        .kernels = &s->kernels,
        .name = s->name,
        .self = s,
        .form = find_form,
        .load = load,
    };
}
