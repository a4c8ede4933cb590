#include "cluster_file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "../net/address.h"
#include "cluster_links.h"
#include "device_class.h"
#include "json_fields.h"

enum { NETWORK_NAME_MAX = 32 };

/* What is being read. */
typedef struct cluster_reader {
    vti_json_at at;
    const char *folder_end; /* of at.file: behind its folder's slash */
    vti_cluster_file *out;
    vti_cluster_media media;
    char network_name[VTI_NETWORKS_MAX][NETWORK_NAME_MAX];
} cluster_reader;

/* --- devices: what they compute --------------------------------------------------------------- */

/* Rates that somebody knows or assumes, the same for all kinds of units. */
static vt_status read_rates(const vti_json_at *at, json_t *object, vti_plan_device *out)
{
    static const char *const fields[] = {"gmacs_per_s", "int_gmacs_per_s", "gbytes_per_s",
                                         "unit_us", NULL};
    vti_json_at in = {.file = at->file, .err = at->err};
    double gmacs = 0, gbytes = 0, unit_us = 10;
    snprintf(in.object, sizeof in.object, "%.56s, \"compute\"", at->object);
    VTI_TRY(vti_json_check_fields(&in, object, fields));
    VTI_TRY(vti_json_number(&in, object, "gmacs_per_s", 1e-3, 1e6, &gmacs));
    VTI_TRY(vti_json_number(&in, object, "gbytes_per_s", 1e-3, 1e6, &gbytes));
    VTI_TRY(vti_json_number(&in, object, "unit_us", 0, 1e6, &unit_us));
    double int_gmacs = gmacs;
    VTI_TRY(vti_json_number(&in, object, "int_gmacs_per_s", 1e-3, 1e6, &int_gmacs));
    if (gmacs == 0) return vti_json_bad(&in, "gmacs_per_s", "there, a number such as 50");
    if (gbytes == 0) return vti_json_bad(&in, "gbytes_per_s", "there, a number such as 20");
    for (int kind = 0; kind < VTI_PLAN_KINDS; kind++)
        for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (int phase = 0; phase < VTI_PHASES; phase++)
                out->cost[kind][p][phase] = (vti_plan_coefficients){
                    .fixed = kind == VTI_PLAN_EMBED ? 0 : unit_us * 1e-6,
                    .per_mac = 1e-9 / (p == VTI_PLAN_F16 ? gmacs : int_gmacs),
                    .per_weight_byte = 1e-9 / gbytes,
                    /* 16 tokens of a prompt share what is read */
                    .per_kv_byte = 1e-9 / (phase == VTI_PREFILL ? 16 * gbytes : gbytes),
                    .per_kv_mac = 1e-9 / gmacs};
    return VT_OK;
}

/* A path that is not absolute starts from the cluster file's folder. */
static vt_status read_profile(cluster_reader *r, const json_t *object, vti_cluster_device *device)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    vt_error why;
    VTI_TRY(vti_json_text(&r->at, object, "profile", sizeof device->kind, device->kind));
    int folder = device->kind[0] == '/' ? 0 : (int)(r->folder_end - r->at.file);
    int length = snprintf(path, sizeof path, "%.*s%s", folder, r->at.file, device->kind);
    vt_status status = length < (int)sizeof path
                           ? vti_read_text(path, VTI_CLUSTER_TEXT_MAX, &text, &bytes, &why)
                           : vti_fail(&why, VT_ERR_IO, "its path is too long");
    if (status == VT_OK) {
        status = vti_profile_read_json(text, bytes, &device->profile, &why);
        free(text);
    }
    device->has_profile = true;
    return status == VT_OK ? VT_OK
                           : vti_fail(r->at.err, status, "%s, %s, \"profile\": %s", r->at.file,
                                      r->at.object, why.message);
}

static vt_status read_class(cluster_reader *r, const json_t *object, vti_cluster_device *device,
                            vti_plan_device *out)
{
    uint64_t memory;
    vt_error why;
    VTI_TRY(vti_json_text(&r->at, object, "class", sizeof device->kind, device->kind));
    vt_status status = vti_device_class(device->kind, &device->profile, &memory, &why);
    if (status != VT_OK)
        return vti_fail(r->at.err, VT_ERR_FORMAT, "%s, %s, \"class\": %s", r->at.file, r->at.object,
                        why.message);
    device->has_profile = true;
    /* Half of it is the system's and other programs'. */
    out->memory_bytes = (double)(memory / 2);
    return VT_OK;
}

static vt_status read_compute(cluster_reader *r, json_t *object, vti_cluster_device *device,
                              vti_plan_device *out)
{
    const char *given = NULL;
    static const char *const ways[] = {"class", "profile", "compute"};
    for (unsigned i = 0; i < 3; i++) {
        if (!json_object_get(object, ways[i])) continue;
        if (given) return vti_json_bad(&r->at, ways[i], "left out: one of them is enough");
        given = ways[i];
    }
    if (!given) return vti_json_bad(&r->at, "class", "there (or \"profile\", or \"compute\")");
    if (strcmp(given, "class") == 0) return read_class(r, object, device, out);
    if (strcmp(given, "profile") == 0) return read_profile(r, object, device);
    strcpy(device->kind, "given");
    return read_rates(&r->at, json_object_get(object, "compute"), out);
}

static vt_status read_memory(cluster_reader *r, const json_t *object, vti_plan_device *out)
{
    uint64_t bytes = (uint64_t)out->memory_bytes;
    VTI_TRY(vti_json_size(&r->at, object, "memory", &bytes));
    if (bytes == 0) return vti_json_bad(&r->at, "memory", "there, a size such as \"1.5G\"");
    out->memory_bytes = (double)bytes;
    return VT_OK;
}

static vt_status read_names(cluster_reader *r, const json_t *object, unsigned number)
{
    vti_cluster_device *device = &r->out->device[number];
    char host[VTI_NET_ADDRESS_MAX];
    uint16_t port;
    VTI_TRY(vti_json_text(&r->at, object, "name", sizeof device->name, device->name));
    if (!device->name[0]) return vti_json_bad(&r->at, "name", "there");
    snprintf(r->at.object, sizeof r->at.object, "device %u (%s)", number, device->name);
    for (unsigned d = 0; d < number; d++)
        if (strcmp(r->out->device[d].name, device->name) == 0)
            return vti_json_bad(&r->at, "name", "another one than those of the devices before");
    VTI_TRY(vti_json_text(&r->at, object, "address", sizeof device->address, device->address));
    if (device->address[0] && vti_address_split(device->address, host, &port, NULL) != VTI_NET_OK)
        return vti_json_bad(&r->at, "address", "\"HOST:PORT\" or \"[IPv6]:PORT\"");
    return VT_OK;
}

/* --- devices: how they are reached ------------------------------------------------------------ */

/* Media without an access point or a switch are the main device's own. */
static bool is_mains_own(const char *medium)
{
    return strncmp(medium, "usb", 3) == 0 || strncmp(medium, "bluetooth", 9) == 0 ||
           strcmp(medium, "wifi-direct") == 0;
}

static vt_status bad_medium(const vti_json_at *at, const char *field)
{
    char known[300] = "one of";
    for (size_t i = 0; vti_medium_at(i); i++) {
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, " %s", vti_medium_at(i)->name);
    }
    return vti_json_bad(at, field, known);
}

/* The network of that name; a medium's name stands for a network of its own. */
static vt_status find_network(cluster_reader *r, const char *field, const char *name,
                              unsigned *out)
{
    vti_cluster_media *media = &r->media;
    for (*out = 0; *out < media->networks; ++*out)
        if (strcmp(r->network_name[*out], name) == 0) return VT_OK;
    const vti_medium *medium = vti_medium_find(name);
    if (!medium) return bad_medium(&r->at, field);
    if (media->networks == VTI_NETWORKS_MAX)
        return vti_json_bad(&r->at, field, "one of those used before: 8 networks are the most");
    strcpy(r->network_name[*out], medium->name);
    bool own = is_mains_own(name);
    media->network[media->networks++] = (vti_network){
        .medium = medium, .hub = own ? 0 : VTI_HUB_OUTSIDE, .site = own ? 0 : 1};
    return VT_OK;
}

static vt_status attach(cluster_reader *r, unsigned number, unsigned network, double rssi_dbm)
{
    vti_device_media *media = &r->media.device[number];
    if (media->attachments == VTI_ATTACHMENTS_MAX)
        return vti_json_bad(&r->at, "medium", "one of at most 3");
    media->attachment[media->attachments++] =
        (vti_attachment){.network = network, .rssi_dbm = rssi_dbm};
    return VT_OK;
}

static vt_status read_medium(cluster_reader *r, const json_t *object, unsigned number)
{
    char name[NETWORK_NAME_MAX] = "";
    double rssi_dbm = VTI_RSSI_UNKNOWN;
    unsigned network;
    VTI_TRY(vti_json_text(&r->at, object, "medium", sizeof name, name));
    VTI_TRY(vti_json_number(&r->at, object, "rssi_dbm", -120, -1, &rssi_dbm));
    if (!name[0])
        return rssi_dbm == VTI_RSSI_UNKNOWN ? VT_OK : bad_medium(&r->at, "medium");
    VTI_TRY(find_network(r, "medium", name, &network));
    if (rssi_dbm != VTI_RSSI_UNKNOWN && !r->media.network[network].medium->radio)
        return vti_json_bad(&r->at, "rssi_dbm", "left out: the medium is no radio");
    return attach(r, number, network, rssi_dbm);
}

/* Both or none of them; *given says which. */
static vt_status read_measured(const vti_json_at *at, const json_t *object, double *latency_s,
                               double *bytes_per_s, bool *given)
{
    double ms = -1, mbps = 0;
    VTI_TRY(vti_json_number(at, object, "latency_ms", 0, 60e3, &ms));
    VTI_TRY(vti_json_number(at, object, "bandwidth_mbps", 1e-3, 1e6, &mbps));
    *given = ms >= 0 && mbps > 0;
    if (ms >= 0 && mbps == 0) return vti_json_bad(at, "bandwidth_mbps", "there beside latency_ms");
    if (ms < 0 && mbps > 0) return vti_json_bad(at, "latency_ms", "there beside bandwidth_mbps");
    *latency_s = *given ? ms * 1e-3 : 0;
    *bytes_per_s = mbps * 1e6 / 8;
    return VT_OK;
}

static vt_status read_links_of(cluster_reader *r, const json_t *object, unsigned number)
{
    vti_device_media *media = &r->media.device[number];
    bool measured;
    VTI_TRY(read_medium(r, object, number));
    VTI_TRY(read_measured(&r->at, object, &media->to_main.latency_s, &media->to_main.bytes_per_s,
                          &measured));
    media->to_main.rtts = media->to_main.transfers = measured;
    if (number == 0 && measured)
        return vti_json_bad(&r->at, "latency_ms", "with the other devices: it is to this one");
    if (number > 0 && !measured && !media->attachments) return bad_medium(&r->at, "medium");
    return VT_OK;
}

static vt_status read_device(cluster_reader *r, json_t *object, unsigned number)
{
    static const char *const fields[] = {"name",     "class",      "profile",        "compute",
                                         "memory",   "address",    "medium",         "rssi_dbm",
                                         "latency_ms", "bandwidth_mbps", NULL};
    vti_plan_device *plan = &r->out->plan.device[number];
    snprintf(r->at.object, sizeof r->at.object, "device %u", number);
    VTI_TRY(vti_json_check_fields(&r->at, object, fields));
    VTI_TRY(read_names(r, object, number));
    VTI_TRY(read_compute(r, object, &r->out->device[number], plan));
    VTI_TRY(read_memory(r, object, plan));
    return read_links_of(r, object, number);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* The main device is on the networks that are its own, and on all if nothing is said of it. */
static vt_status attach_main(cluster_reader *r)
{
    const vti_device_media *media = &r->media.device[0];
    bool anywhere = media->attachments == 0;
    strcpy(r->at.object, "device 0");
    for (unsigned n = 0; n < r->media.networks; n++) {
        bool is_on = media->attachments && media->attachment[0].network == n;
        if (!is_on && (anywhere || r->media.network[n].hub == 0))
            VTI_TRY(attach(r, 0, n, VTI_RSSI_UNKNOWN));
    }
    return VT_OK;
}

static vt_status find_device(cluster_reader *r, const json_t *name, unsigned *out)
{
    const char *wanted = json_string_value(name);
    for (*out = 0; *out < r->out->plan.devices; ++*out)
        if (wanted && strcmp(r->out->device[*out].name, wanted) == 0) return VT_OK;
    return vti_json_bad(&r->at, "between", "a list of the names of two devices");
}

/* A pair of devices of which more is known. Its airtime stays that of the networks. */
static vt_status read_pair(cluster_reader *r, json_t *object, unsigned number)
{
    static const char *const fields[] = {"between", "latency_ms", "bandwidth_mbps", NULL};
    vti_plan_cluster *plan = &r->out->plan;
    const json_t *between = json_object_get(object, "between");
    double latency_s, bytes_per_s;
    bool measured;
    unsigned end[2];
    snprintf(r->at.object, sizeof r->at.object, "pair %u", number);
    VTI_TRY(vti_json_check_fields(&r->at, object, fields));
    for (unsigned i = 0; i < 2; i++) VTI_TRY(find_device(r, json_array_get(between, i), &end[i]));
    if (json_array_size(between) != 2 || end[0] == end[1])
        return vti_json_bad(&r->at, "between", "a list of the names of two devices");
    VTI_TRY(read_measured(&r->at, object, &latency_s, &bytes_per_s, &measured));
    if (!measured) return vti_json_bad(&r->at, "latency_ms", "there, as bandwidth_mbps");
    for (unsigned i = 0; i < 2; i++) {
        vti_plan_link *link = &plan->link[end[i]][end[1 - i]];
        link->latency_s = latency_s;
        link->bytes_per_s = bytes_per_s;
        if (end[i] == 0) r->out->reached |= 1u << end[1 - i];
    }
    return VT_OK;
}

static vt_status set_links(cluster_reader *r)
{
    unsigned where;
    bool is_network;
    r->media.devices = r->out->plan.devices;
    VTI_TRY(attach_main(r));
    const char *wrong = vti_cluster_media_check(&r->media, &where, &is_network);
    if (wrong)
        return vti_fail(r->at.err, VT_ERR_FORMAT, "%s, %s: %s", r->at.file,
                        is_network ? r->network_name[where] : r->out->device[where].name, wrong);
    r->out->reached = vti_cluster_links(&r->media, &r->out->plan);
    return VT_OK;
}

static vt_status read_root(cluster_reader *r, json_t *root)
{
    static const char *const fields[] = {"devices", "pairs", NULL};
    const json_t *devices = json_object_get(root, "devices");
    const json_t *pairs = json_object_get(root, "pairs");
    strcpy(r->at.object, "the cluster");
    VTI_TRY(vti_json_check_fields(&r->at, root, fields));
    size_t count = json_array_size(devices);
    if (!json_is_array(devices) || count == 0 || count > VTI_PLAN_DEVICES_MAX)
        return vti_json_bad(&r->at, "devices", "a list of 1 to 8 devices, the main device first");
    r->out->plan.devices = (unsigned)count;
    for (unsigned d = 0; d < count; d++) VTI_TRY(read_device(r, json_array_get(devices, d), d));
    VTI_TRY(set_links(r));
    if (pairs && !json_is_array(pairs)) return vti_json_bad(&r->at, "pairs", "a list");
    for (unsigned i = 0; i < json_array_size(pairs); i++)
        VTI_TRY(read_pair(r, json_array_get(pairs, i), i));
    return VT_OK;
}

vt_status vti_cluster_file_parse(const char *text, size_t bytes, const char *file,
                                 vti_cluster_file *out, vt_error *err)
{
    json_t *root = vti_json_load(file, text, bytes, err);
    if (!root) return VT_ERR_FORMAT;
    const char *slash = strrchr(file, '/');
    cluster_reader reader = {.at = {.file = file, .err = err},
                             .folder_end = slash ? slash + 1 : file, .out = out};
    memset(out, 0, sizeof *out);
    vt_status status = read_root(&reader, root);
    json_decref(root);
    return status;
}

vt_status vti_cluster_file_read(const char *path, vti_cluster_file *out, vt_error *err)
{
    char *text;
    size_t bytes;
    VTI_TRY(vti_read_text(path, VTI_CLUSTER_TEXT_MAX, &text, &bytes, err));
    vt_status status = vti_cluster_file_parse(text, bytes, path, out, err);
    free(text);
    return status;
}
