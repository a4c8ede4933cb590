/* profile_file.c: profiles as objects of the public interface, and in files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output_file.h"
#include "profile.h"

enum { MOST_BYTES = 1 << 20 }; /* of a file: several hundred times what is written */

vt_status vti_profile_new(const vti_profile *facts, vt_profile **out, vt_error *err)
{
    *out = malloc(sizeof **out);
    if (!*out) return vti_fail(err, VT_ERR_MEMORY, "no memory for a profile");
    **out = (vt_profile){.facts = *facts};
    return VT_OK;
}

void vt_profile_close(vt_profile *profile) { free(profile); }

/* A whole small file; to be freed. */
static vt_status read_file(const char *path, char **text, size_t *bytes, vt_error *err)
{
    FILE *file = fopen(path, "rbe");
    if (!file) return vti_fail(err, VT_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    *text = malloc(MOST_BYTES);
    *bytes = *text ? fread(*text, 1, MOST_BYTES, file) : 0;
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    if (!*text) return vti_fail(err, VT_ERR_MEMORY, "no memory to read %s", path);
    if (!failed && *bytes < MOST_BYTES) return VT_OK;
    free(*text);
    if (failed) return vti_fail(err, VT_ERR_IO, "cannot read %s: %s", path, strerror(failed));
    return vti_fail(err, VT_ERR_FORMAT, "%s is too large for a device profile", path);
}

vt_status vt_profile_load(const char *path, vt_profile **out, vt_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    vti_profile facts;
    vt_error why = {.status = VT_OK};
    *out = NULL;
    VTI_TRY(read_file(path, &text, &bytes, err));
    vt_status status = vti_profile_read_json(text, bytes, &facts, &why);
    free(text);
    if (status != VT_OK) return vti_fail(err, status, "%s: %s", path, why.message);
    return vti_profile_new(&facts, out, err);
}

/* A profile of ours begins like this. */
static const char magic[4] = "{\"fo";

static vt_status write_text(const char *text, const char *path, vt_error *err)
{
    vti_output_file file = VTI_OUTPUT_NONE;
    vt_status status = vti_output_open(&file, path, 0666, err);
    if (status == VT_OK) status = vti_output_write(&file, text, strlen(text), err);
    if (status == VT_OK) status = vti_output_commit(&file, err);
    vti_output_discard(&file);
    return status;
}

vt_status vt_profile_save(const vt_profile *profile, const char *path, vt_error *err)
{
    VTI_TRY(vti_output_check(path, magic, "a device profile", err));
    char *text = vti_profile_write_json(&profile->facts);
    if (!text) return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    vt_status status = write_text(text, path, err);
    free(text);
    return status;
}

size_t vt_profile_text(const vt_profile *profile, char *buffer, size_t capacity)
{
    char *text = vti_profile_write_json(&profile->facts);
    size_t bytes = text ? strlen(text) : 0;
    if (text && capacity) snprintf(buffer, capacity, "%s", text);
    free(text);
    return bytes;
}
