/* manifest.h: what a device is to hold, shard by shard, as the main device tells it.
 *
 * The shards of some layers follow from the model's geometry: unit by unit, the shards of each,
 * then what they share. A manifest has one entry for each, in that order; a shard that is left out of
 * the model has one that says so. */
#ifndef VTI_MANIFEST_H
#define VTI_MANIFEST_H

#include "shard.h"
#include "shard_cache.h"

enum {
    VTI_MANIFEST_ENTRY_BYTES = 68,
    VTI_MANIFEST_ENTRIES_MAX = 900000 /* that a message has room for */
};

typedef struct vti_manifest_entry {
    vti_shard_id id;
    vti_shard_form form;
    bool left_out;         /* computed without it: everything below is zero */
    uint64_t bytes;        /* for the kernels */
    uint64_t stored_bytes; /* as a block that travels */
    vti_content_hash hash;
} vti_manifest_entry;

typedef struct vti_manifest {
    const vti_geometry *geometry;
    const vti_kernels *kernels;
    bool same_file; /* the device loads all shards from the file that the main device has, too:
                       there are no blocks, their sizes and hashes are zero */
    uint32_t count;
    vti_manifest_entry *entries;
} vti_manifest;

/* Entries that layers [first, first + layers) have. 0: more than a manifest may have. */
uint32_t vti_manifest_count(const vti_geometry *g, uint32_t first, uint32_t layers);

/* Entries with nothing but unit and shard filled in. `geometry` and `kernels` stay valid.
 * ERR_MEMORY, ERR_UNSUPPORTED (too many). */
vt_status vti_manifest_new(const vti_geometry *geometry, const vti_kernels *kernels, uint32_t first,
                           uint32_t layers, vti_manifest *out, vt_error *err);
/* All zero is fine, and is what it leaves. */
void vti_manifest_free(vti_manifest *manifest);

/* Sums over the entries. */
uint64_t vti_manifest_bytes(const vti_manifest *manifest);
uint64_t vti_manifest_largest_stored_bytes(const vti_manifest *manifest);

bool vti_shard_form_is(const vti_shard_form *a, const vti_shard_form *b);
bool vti_manifest_lay_out(const vti_manifest *manifest, uint32_t index, vti_shard_layout *out);

/* "ATTN(3) shard 2", for messages. */
const char *vti_manifest_name(const vti_manifest *manifest, uint32_t index,
                              char buffer[VTI_SHARD_TEXT]);

/* count × VTI_MANIFEST_ENTRY_BYTES. */
void vti_manifest_encode(const vti_manifest *manifest, uint8_t *out);

/* Fills a new manifest's entries from as many bytes. ERR_PROTOCOL names the entry: every one must
 * be the expected shard in a form that the model can have, with the sizes that follow from it. */
vt_status vti_manifest_decode(vti_manifest *manifest, const uint8_t *data, size_t bytes,
                              vt_error *err);

#endif
