/* Plans for clusters that files describe: what a file may say, what a plan says of itself, and that
 * its advice is right. */
#include "planning_support.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/importance.h"
#include "../src/model.h"

#define COMPUTE "\"compute\": {\"gmacs_per_s\": 50, \"gbytes_per_s\": 20}"
#define ONE "{\"name\": \"a\", \"memory\": \"64M\", " COMPUTE "}"

/* --- files ------------------------------------------------------------------------------------ */

/* `device`: the second one's fields. */
static void expect_bad_device(const char *device, const char *words)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"devices\": [" ONE ", {%s}]}", device);
    planning_expect_error(text, NULL, VT_ERR_FORMAT, words);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } files[] = {
        {"", "is no JSON: line 1"},
        {"[]", "the cluster must be an object"},
        {"{}", "\"devices\" must be a list of 1 to 8 devices"},
        {"{\"devices\": []}", "\"devices\" must be a list of 1 to 8 devices"},
        {"{\"devices\": [" ONE "], \"color\": 1}",
         "there is no field \"color\", only devices, pairs"},
        {"{\"devices\": [3]}", "device 0 must be an object"},
        {"{\"devices\": [" ONE "], \"devices\": []}", "duplicate"},
        {"{\"devices\": [" ONE "], \"pairs\": 1}", "\"pairs\" must be a list"},
        {"{\"devices\": [" ONE "], \"pairs\": [{\"between\": [\"a\", \"b\"]}]}",
         "pair 0: \"between\" must be a list of the names of two devices"},
        {"{\"devices\": [" ONE "], \"pairs\": [{\"between\": [\"a\", \"a\"]}]}",
         "pair 0: \"between\" must be a list of the names of two devices"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        planning_expect_error(files[i].text, NULL, VT_ERR_FORMAT, files[i].words);
}

static void mistakes_name_device_and_field(void **state)
{
    (void)state;
#define GOOD "\"name\": \"b\", \"memory\": \"64M\", \"medium\": \"usb-3\""
    expect_bad_device("\"memory\": \"1G\"", "device 1: \"name\" must be there");
    expect_bad_device("\"name\": \"a\"", "\"name\" must be another one");
    expect_bad_device("\"name\": 7", "\"name\" must be a text of 1 to 31 bytes");
    expect_bad_device(GOOD, "device 1 (b): \"class\" must be there");
    expect_bad_device(GOOD ", \"class\": \"sun-4\"", "device 1 (b), \"class\": ");
    expect_bad_device(GOOD ", \"class\": \"sun-4\"", "pixel-5");
    expect_bad_device(GOOD ", \"compute\": 1", "device 1 (b), \"compute\" must be an object");
    expect_bad_device(GOOD ", \"compute\": {}", "\"gmacs_per_s\" must be there");
    expect_bad_device(GOOD ", \"compute\": {\"gmacs_per_s\": -1}", "must be a number from 0.001");
    expect_bad_device(GOOD ", \"compute\": {\"gmacs_per_s\": 1}", "\"gbytes_per_s\" must be there");
    expect_bad_device(GOOD ", \"profile\": \"p\", " COMPUTE, "\"compute\" must be left out");
    expect_bad_device("\"name\": \"b\", " COMPUTE ", \"medium\": \"usb-3\"",
                      "device 1 (b): \"memory\" must be there");
    expect_bad_device("\"name\": \"b\", " COMPUTE ", \"memory\": \"lots\"",
                      "\"memory\" must be a size such as");
    expect_bad_device("\"name\": \"b\", " COMPUTE ", \"memory\": -4",
                      "\"memory\" must be a size such as");
    expect_bad_device("\"name\": \"b\", " COMPUTE ", \"memory\": \"64M\"",
                      "\"medium\" must be one of loopback");
    expect_bad_device("\"name\": \"b\", " COMPUTE ", \"memory\": \"64M\", \"medium\": \"wlan\"",
                      "\"medium\" must be one of loopback");
    expect_bad_device(GOOD ", " COMPUTE ", \"rssi_dbm\": -50", "\"rssi_dbm\" must be left out");
    expect_bad_device(GOOD ", " COMPUTE ", \"rssi_dbm\": 50", "\"rssi_dbm\" must be a number from");
    expect_bad_device(GOOD ", " COMPUTE ", \"latency_ms\": 1", "\"bandwidth_mbps\" must be there");
    expect_bad_device(GOOD ", " COMPUTE ", \"bandwidth_mbps\": 1", "\"latency_ms\" must be there");
    expect_bad_device(GOOD ", " COMPUTE ", \"address\": \"here\"",
                      "\"address\" must be \"HOST:PORT\"");
    expect_bad_device(GOOD ", " COMPUTE ", \"ram\": 1", "there is no field \"ram\"");
#undef GOOD
}

static void a_bad_profile_is_named(void **state)
{
    (void)state;
    char path[] = "/tmp/voltron-profile-XXXXXX", text[1024];
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, "{}", 2) == 2);
    close(file);
    snprintf(text, sizeof text, "{\"devices\": [{\"name\": \"a\", \"memory\": \"64M\", "
             "\"profile\": \"%s\"}]}", path);
    planning_expect_error(text, NULL, VT_ERR_FORMAT, "device 0 (a), \"profile\": ");
    unlink(path);
    planning_expect_error(text, NULL, VT_ERR_IO, path); /* gone */
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    vt_plan *plan;
    vt_error err;
    assert_int_equal(vt_plan_open(planning_model(), "/nowhere.json", NULL, &plan, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere.json"));
    assert_null(plan);
}

/* Measured figures come before what the medium says; a pair's before both. */
static void measured_links_count(void **state)
{
    (void)state;
    static const char *const links[] = {
        "\"medium\": \"bluetooth\"",
        "\"medium\": \"bluetooth\", \"latency_ms\": 1, \"bandwidth_mbps\": 9",
        "\"latency_ms\": 0.1, \"bandwidth_mbps\": 900"};
    double tpot_s[3];
    for (int i = 0; i < 3; i++) {
        char text[1024];
        vt_plan_info info;
        vt_plan_params params = vt_plan_params_default();
        params.planner = "even-mp";
        params.precision = "F16";
        snprintf(text, sizeof text,
                 "{\"devices\": [" ONE ", {\"name\": \"b\", \"memory\": \"64M\", %s, " COMPUTE
                 "}]}", links[i]);
        vt_plan *plan = planning_open(text, &params);
        vt_plan_get_info(plan, &info);
        tpot_s[i] = info.tpot_s;
        vt_plan_close(plan);
    }
    assert_true(tpot_s[0] > 2 * tpot_s[1]);
    assert_true(tpot_s[1] > 2 * tpot_s[2]);
}

/* The ones that people begin with. */
static void shipped_clusters_are_good(void **state)
{
    (void)state;
    unsigned count = 0;
    DIR *folder = opendir("docs/clusters");
    assert_non_null(folder);
    for (struct dirent *item; (item = readdir(folder));) {
        char path[300];
        vt_plan *plan;
        vt_error err;
        if (item->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "docs/clusters/%s", item->d_name);
        if (vt_plan_open(planning_model(), path, NULL, &plan, &err) != VT_OK)
            fail_msg("%s", err.message);
        vt_plan_close(plan);
        count++;
    }
    closedir(folder);
    assert_true(count > 0);
}

/* --- parameters ------------------------------------------------------------------------------- */

static void parameters_are_checked(void **state)
{
    (void)state;
    const char *text = planning_cluster(16, 8, 8);
    vt_plan_params good = vt_plan_params_default(), p = good;
    p.planner = "best";
    planning_expect_error(text, &p, VT_ERR_ARGUMENT,
                          "there is no planner \"best\", only dp, greedy");
    p = good, p.precision = "Q8";
    planning_expect_error(text, &p, VT_ERR_ARGUMENT, "only mixed, F16, I8, I4");
    p = good, p.allocation = "some";
    planning_expect_error(text, &p, VT_ERR_ARGUMENT, "there is no allocation \"some\"");
    p = good, p.order = "size";
    planning_expect_error(text, &p, VT_ERR_ARGUMENT, "there is no order \"size\", only per-byte");
    p = good, p.wire = "BF16";
    planning_expect_error(text, &p, VT_ERR_ARGUMENT, "there is no wire precision \"BF16\"");
    p = good, p.tpot_s = 0;
    planning_expect_error(text, &p, VT_ERR_ARGUMENT, "must be above 0");
    p = vt_plan_params_default();
    p.kv_type = (vt_kv_type)77;
    planning_expect_error(text, &p, VT_ERR_ARGUMENT, "unknown KV cache type 77");
    p = good, p.context_tokens = 1 << 20;
    planning_expect_error(text, &p, VT_ERR_ARGUMENT, "a context of 1048576 tokens is more than");
    p = good, p.context_tokens = 100, p.prompt_tokens = 101;
    planning_expect_error(text, &p, VT_ERR_ARGUMENT, "a prompt of 101 tokens does not fit");
    p = good, p.plan_json = "{}";
    planning_expect_error(text, &p, VT_ERR_FORMAT, "the plan given: ");
}

static void planners_have_the_planners_names(void **state)
{
    (void)state;
    const char *const *names = vt_plan_planners();
    for (unsigned i = 0; i < VTI_SEARCHES; i++)
        assert_string_equal(names[i], vti_plan_search_name(i));
    assert_null(names[VTI_SEARCHES]);
}

/* --- what a plan says ------------------------------------------------------------------------- */

static void check_unit(const vt_plan_unit_info *unit, unsigned devices)
{
    for (unsigned phase = 0; phase < VT_PHASE_COUNT; phase++) {
        const vt_plan_unit_phase *p = &unit->phase[phase];
        unsigned sum = 0, sharers = 0;
        for (unsigned d = 0; d < VT_PLAN_DEVICES_MAX; d++) {
            sum += p->shares[d];
            sharers += p->shares[d] > 0;
        }
        assert_int_equal(sum, unit->shards);
        assert_int_equal(sharers, p->sharers);
        assert_true(p->home < devices && p->from < devices);
    }
}

/* Sums are sums, parts make up wholes. */
static void check_consistent(const vt_plan *plan)
{
    vt_plan_info info;
    vt_plan_device_info d;
    vt_plan_unit_info unit;
    uint32_t devices = 0, units = 0;
    vt_plan_get_info(plan, &info);
    for (; vt_plan_get_unit(plan, units, &unit) == VT_OK; units++)
        check_unit(&unit, info.device_count);
    assert_int_equal(units, info.unit_count);
    double slack = 1e-9 * info.ttft_s;
    assert_true(info.compute_s[VT_PHASE_PREFILL] + info.wire_s[VT_PHASE_PREFILL] >=
                info.ttft_s - slack);
    assert_true(fabs(info.compute_s[VT_PHASE_DECODE] + info.wire_s[VT_PHASE_DECODE] -
                     info.tpot_s) <= slack);
    bool lacks = false;
    for (; vt_plan_get_device(plan, devices, &d) == VT_OK; devices++) {
        assert_int_equal(d.weight_bytes + d.kv_bytes + d.scratch_bytes, d.memory_bytes);
        assert_true(d.shortfall_bytes + d.budget_bytes >= d.memory_bytes);
        assert_true(d.busy_s[VT_PHASE_DECODE] <= info.compute_s[VT_PHASE_DECODE] * (1 + 1e-9));
        assert_true(d.is_used == (d.units[0] || d.units[1]));
        lacks = lacks || d.shortfall_bytes;
    }
    assert_int_equal(devices, info.device_count);
    assert_true(info.is_feasible == !lacks);
    assert_true(info.is_feasible || !info.meets_qos);
    assert_true(info.bound_s <= info.tpot_s * (1 + 1e-9) || !info.is_feasible);
}

static void plans_are_consistent(void **state)
{
    (void)state;
    static const unsigned memory[][3] = {{64, 64, 64}, {6, 5, 5}, {3, 3, 3}};
    for (unsigned planner = 0; vt_plan_planners()[planner]; planner++)
        for (unsigned i = 0; i < 3; i++) {
            vt_plan_params params = vt_plan_params_default();
            params.planner = vt_plan_planners()[planner];
            params.precision = i % 2 ? "I8" : NULL;
            vt_plan *plan =
                planning_open(planning_cluster(memory[i][0], memory[i][1], memory[i][2]), &params);
            check_consistent(plan);
            vt_plan_close(plan);
        }
}

static unsigned lowered_units(const vt_plan *plan, vt_precision below)
{
    vt_plan_unit_info unit;
    unsigned n = 0;
    for (size_t u = 1; vt_plan_get_unit(plan, u, &unit) == VT_OK; u++) n += unit.precision > below;
    return n;
}

static void little_memory_lowers_precision(void **state)
{
    (void)state;
    vt_plan *roomy = planning_open(planning_cluster(64, 64, 64), NULL);
    vt_plan *tight = planning_open(planning_cluster(8, 4, 4), NULL);
    vt_plan_info info;
    vt_plan_unit_info head;
    assert_int_equal(lowered_units(roomy, VT_PRECISION_F16), 0);
    assert_true(lowered_units(tight, VT_PRECISION_F16) > 0);
    vt_plan_get_info(tight, &info);
    assert_true(info.is_feasible);
    assert_non_null(planning_remark(tight, "Which units matter is not known"));
    assert_non_null(planning_remark(tight, "All units at one precision: F16 does not fit; I8 "));
    vt_plan_get_unit(tight, info.unit_count - 1, &head);
    assert_string_equal(head.name, "HEAD");
    assert_int_equal(head.precision, VT_PRECISION_F16); /* goes last */
    vt_plan_close(roomy);
    vt_plan_close(tight);
}

static void a_strict_qos_lowers_precision(void **state)
{
    (void)state;
    vt_plan_params params = vt_plan_params_default();
    vt_plan_info f16, strict;
    vt_plan *plan = planning_open(planning_cluster(64, 64, 64), &params);
    vt_plan_get_info(plan, &f16);
    vt_plan_close(plan);
    params.tpot_s = 0.7 * f16.tpot_s;
    plan = planning_open(planning_cluster(64, 64, 64), &params);
    vt_plan_get_info(plan, &strict);
    assert_true(strict.meets_qos && strict.tpot_s <= params.tpot_s);
    assert_true(lowered_units(plan, VT_PRECISION_F16) > 0);
    vt_plan_close(plan);
    params.precision = "F16";
    plan = planning_open(planning_cluster(64, 64, 64), &params);
    vt_plan_get_info(plan, &strict);
    assert_false(strict.meets_qos);
    assert_non_null(planning_remark(plan, "more than the "));
    vt_plan_close(plan);
}

/* As if it had been measured: the first units matter least. */
static void write_importance(const char *path)
{
    const vt_model *model = planning_model();
    vti_importance *im;
    assert_int_equal(vti_importance_new(&model->geometry, &im, NULL), VT_OK);
    vti_model_get_identity(model, &im->identity);
    strcpy(im->task, "test");
    im->tokens = 100, im->context_tokens = 10, im->perplexity = 8;
    for (uint32_t unit = 0; unit < im->units; unit++) {
        im->measured[unit] = true;
        for (uint32_t i = im->first_part[unit]; i < im->first_part[unit + 1]; i++) {
            const vti_importance_part *part = &im->part_at[i];
            for (uint32_t c = 0; c < part->channels; c++)
                im->channel[part->first_channel + c] = (unit + 1) / 1024.0;
            im->part[i] = part->channels * (unit + 1) / 1024.0;
            im->unit[unit] += im->part[i];
        }
    }
    char *text = vti_importance_write_json(im, &model->geometry);
    FILE *file = fopen(path, "w");
    assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
    free(text);
    vti_importance_free(im);
}

static double saved_bytes(uint32_t unit)
{
    const vti_shard_source *source = planning_model()->shards;
    double bytes = 0;
    for (uint32_t shard = 0; shard < vti_unit_shards(source->geometry, unit); shard++) {
        vti_shard_layout high, low;
        vti_shard_id id = {unit, shard, VTI_PRECISION_F16};
        assert_true(vti_shard_source_lay_out(source, id, &high));
        id.precision = VTI_PRECISION_I8;
        assert_true(vti_shard_source_lay_out(source, id, &low));
        bytes += (double)high.bytes - (double)low.bytes;
    }
    return bytes;
}

/* What matters least is lowered first, by itself or per byte. */
static void check_order(const char *path, const char *order)
{
    vt_plan_params params = vt_plan_params_default();
    vt_plan_info info;
    vt_plan_unit_info unit;
    double lowered_most = 0, kept_least = INFINITY;
    params.importance_path = path;
    params.order = order;
    vt_plan *plan = planning_open(planning_cluster(8, 4, 4), &params);
    vt_plan_get_info(plan, &info);
    assert_true(info.has_importance);
    assert_null(planning_remark(plan, "Which units matter is not known"));
    for (size_t u = 1; vt_plan_get_unit(plan, u, &unit) == VT_OK; u++) {
        /* FFN units have twice the channels of ATTN and HEAD: what counts is the sum. */
        double score = (double)u * (u % 2 ? 256 : 512);
        if (!order) score /= saved_bytes((uint32_t)u - 1);
        if (unit.precision > VT_PRECISION_F16 && score > lowered_most) lowered_most = score;
        if (unit.precision == VT_PRECISION_F16 && score < kept_least) kept_least = score;
    }
    assert_true(lowered_most > 0 && lowered_most < kept_least);
    vt_plan_close(plan);
}

static void importances_are_followed(void **state)
{
    (void)state;
    char path[] = "/tmp/voltron-importance-XXXXXX";
    vt_plan_params params = vt_plan_params_default();
    close(mkstemp(path));
    write_importance(path);
    check_order(path, "plain");
    check_order(path, NULL);
    params.importance_path = path;
    params.precision = "I8";
    planning_expect_error(planning_cluster(8, 4, 4), &params, VT_ERR_ARGUMENT,
                          "importances only matter where precisions are chosen");
    params.precision = NULL;
    params.importance_path = "README.md";
    planning_expect_error(planning_cluster(8, 4, 4), &params, VT_ERR_FORMAT, "README.md");
    unlink(path);
}

/* Copies take memory that is left, and no time. */
static void copies_of_the_kv_cache_are_counted(void **state)
{
    (void)state;
    vt_plan_params params = vt_plan_params_default();
    vt_plan_info info[2];
    uint64_t kv_bytes[2] = {0};
    unsigned copied = 0;
    params.planner = "even-tp";
    for (int i = 0; i < 2; i++) {
        vt_plan_device_info device;
        vt_plan_unit_info unit;
        params.replicate_kv = i;
        vt_plan *plan = planning_open(planning_cluster(64, 64, 64), &params);
        vt_plan_get_info(plan, &info[i]);
        check_consistent(plan);
        for (size_t d = 0; vt_plan_get_device(plan, d, &device) == VT_OK; d++)
            kv_bytes[i] += device.kv_bytes;
        for (size_t u = 0; vt_plan_get_unit(plan, u, &unit) == VT_OK; u++)
            copied += unit.replica >= 0;
        vt_plan_close(plan);
    }
    assert_int_equal(copied, 6); /* ATTN of every layer, in one of the two */
    assert_int_equal(kv_bytes[1], 2 * kv_bytes[0]);
    assert_true(info[0].tpot_s == info[1].tpot_s);
}

/* --- advice ----------------------------------------------------------------------------------- */

/* What the advice says is tried. */
static void advice_makes_it_fit(void **state)
{
    (void)state;
    vt_plan_params params = vt_plan_params_default();
    vt_plan_info info;
    unsigned context, memory[3] = {5, 4, 3};
    double more;
    char device[32];
    params.precision = "I8";
    vt_plan *plan = planning_open(planning_cluster(memory[0], memory[1], memory[2]), &params);
    vt_plan_get_info(plan, &info);
    assert_false(info.is_feasible);
    assert_non_null(planning_remark(plan, " lacks "));
    assert_non_null(planning_remark(plan, "All in I4 it would fit"));
    const char *of_memory = planning_remark(plan, "more memory on ");
    const char *of_context = planning_remark(plan, "with a context of");
    assert_int_equal(sscanf(of_memory, "It would fit with %lf MiB more memory on %31[a-z].", &more,
                            device), 2);
    assert_int_equal(sscanf(of_context, "It would fit with a context of %u", &context), 1);
    vt_plan_close(plan);

    memory[device[0] == 't' ? 0 : device[0] == 'p' ? 1 : 2] += (unsigned)ceil(more);
    plan = planning_open(planning_cluster(memory[0], memory[1], memory[2]), &params);
    vt_plan_get_info(plan, &info);
    assert_true(info.is_feasible);
    vt_plan_close(plan);

    params.context_tokens = context;
    plan = planning_open(planning_cluster(5, 4, 3), &params);
    vt_plan_get_info(plan, &info);
    assert_true(info.is_feasible);
    vt_plan_close(plan);

    params.context_tokens = 0;
    params.precision = "I4";
    plan = planning_open(planning_cluster(5, 4, 3), &params);
    vt_plan_get_info(plan, &info);
    assert_true(info.is_feasible);
    vt_plan_close(plan);
}

static void expect_left_out(const char *compute, const char *memory, const char *link,
                            const char *why)
{
    char text[1024];
    vt_plan_device_info info;
    snprintf(text, sizeof text,
             "{\"devices\": [" ONE ", {\"name\": \"b\", \"memory\": \"%s\", %s, "
             "\"compute\": {\"gmacs_per_s\": %s, \"gbytes_per_s\": %s}}]}",
             memory, link, compute, compute);
    vt_plan *plan = planning_open(text, NULL);
    assert_int_equal(vt_plan_get_device(plan, 1, &info), VT_OK);
    assert_false(info.is_used);
    if (!info.left_out || !strstr(info.left_out, why))
        fail_msg("\"%s\" instead of \"%s\"", info.left_out, why);
    vt_plan_close(plan);
}

static void devices_left_out_have_a_reason(void **state)
{
    (void)state;
    expect_left_out("100", "64M", "\"medium\": \"bluetooth\"", "its link costs more than its help");
    expect_left_out("0.001", "64M", "\"medium\": \"usb-3\"", "it computes too slowly to help");
    expect_left_out("100", "1M", "\"medium\": \"usb-3\"", "its 1.0 MiB are too little");
    expect_left_out("100", "64M", "\"medium\": \"wifi-ac-80\", \"rssi_dbm\": -119",
                    "the main device does not reach it");
}

static void other_planners_are_measured_by_dp(void **state)
{
    (void)state;
    vt_plan_params params = vt_plan_params_default();
    params.planner = "even-mp";
    vt_plan *plan = planning_open(planning_cluster(64, 64, 64), &params);
    assert_non_null(planning_remark(plan, "The planner dp would do it with TPOT"));
    vt_plan_close(plan);
}

/* --- texts ------------------------------------------------------------------------------------ */

static void the_report_has_what_the_getters_say(void **state)
{
    (void)state;
    vt_plan *plan = planning_open(planning_cluster(6, 4, 4), NULL);
    vt_plan_info info;
    vt_plan_device_info device;
    vt_plan_get_info(plan, &info);
    vt_plan_get_device(plan, 1, &device);
    char *text = planning_text(plan, VT_PLAN_REPORT);
    json_t *root = json_loads(text, 0, NULL), *devices, *units;
    assert_non_null(root);
    devices = json_object_get(root, "devices");
    units = json_object_get(root, "units");
    assert_int_equal(json_array_size(devices), info.device_count);
    assert_int_equal(json_array_size(units), info.unit_count);
    double tpot_s = json_real_value(json_object_get(root, "tpot_s"));
    assert_true(fabs(tpot_s - info.tpot_s) <= 1e-9 * info.tpot_s);
    json_t *memory = json_object_get(json_array_get(devices, 1), "memory_bytes");
    assert_int_equal(json_integer_value(memory), device.memory_bytes);
    assert_true(json_array_size(json_object_get(root, "remarks")) > 0);
    json_decref(root);
    free(text);
    vt_plan_close(plan);
}

static void short_buffers_are_filled(void **state)
{
    (void)state;
    vt_plan *plan = planning_open(planning_cluster(6, 4, 4), NULL);
    char *text = planning_text(plan, VT_PLAN_SVG), part[8] = "1234567";
    assert_int_equal(vt_plan_text(plan, VT_PLAN_SVG, part, sizeof part), strlen(text));
    assert_memory_equal(part, text, sizeof part - 1);
    assert_int_equal(part[7], 0);
    free(text);
    vt_plan_close(plan);
}

static void the_drawing_is_xml(void **state)
{
    (void)state;
    char text[1024];
    snprintf(text, sizeof text,
             "{\"devices\": [{\"name\": \"<a> & \\\"b\\\"\", \"memory\": \"64M\", " COMPUTE "}, "
             "{\"name\": \"ein langer Name für ein Gerät\", \"memory\": \"64M\", "
             "\"medium\": \"usb-3\", " COMPUTE "}]}");
    vt_plan *plan = planning_open(text, NULL);
    char *svg = planning_text(plan, VT_PLAN_SVG);
    const char *wrong = planning_check_xml(svg);
    if (wrong) fail_msg("%s", wrong);
    assert_non_null(strstr(svg, "&lt;a&gt; &amp; &quot;b&quot;"));
    assert_non_null(strstr(svg, "ein langer Name für …"));
    assert_non_null(strstr(svg, "ATTN(0) on "));
    free(svg);
    vt_plan_close(plan);
}

/* The checker finds what must not be. */
static void the_xml_check_can_fail(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "<a>",       "<a></b>", "<a b=c/>",  "<a b=\"<\"/>", "<a/><b/>",     "x<a/>",
        "<a>&b</a>", "<a",      "<a b=\"\"", "</a>",         "<a b=\"\" b=\"\"/>", ""};
    assert_null(planning_check_xml("<a b=\"&amp;\"><c/>x &lt;</a>\n"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_non_null(planning_check_xml(bad[i]));
}

static void a_saved_plan_gives_the_same_figures(void **state)
{
    (void)state;
    vt_plan_params params = vt_plan_params_default();
    vt_plan_info before, after;
    vt_plan *plan = planning_open(planning_cluster(7, 3, 3), &params);
    vt_plan_get_info(plan, &before);
    char *text = planning_text(plan, VT_PLAN_JSON);
    vt_plan_close(plan);
    params.plan_json = text;
    plan = planning_open(planning_cluster(7, 3, 3), &params);
    vt_plan_get_info(plan, &after);
    check_consistent(plan);
    assert_string_equal(after.planner, "given");
    assert_true(after.tpot_s == before.tpot_s && after.ttft_s == before.ttft_s);
    assert_true(after.is_feasible && after.meets_qos);
    vt_plan_close(plan);
    plan = planning_open(planning_cluster(3, 3, 3), &params); /* can still be looked at */
    vt_plan_get_info(plan, &after);
    assert_false(after.is_feasible);
    vt_plan_close(plan);
    planning_expect_error("{\"devices\": [" ONE "]}", &params, VT_ERR_ARGUMENT,
                          "the plan has 3 devices, the cluster 1");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(mistakes_name_device_and_field),
        cmocka_unit_test(a_bad_profile_is_named),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(measured_links_count),
        cmocka_unit_test(shipped_clusters_are_good),
        cmocka_unit_test(parameters_are_checked),
        cmocka_unit_test(planners_have_the_planners_names),
        cmocka_unit_test(plans_are_consistent),
        cmocka_unit_test(little_memory_lowers_precision),
        cmocka_unit_test(a_strict_qos_lowers_precision),
        cmocka_unit_test(copies_of_the_kv_cache_are_counted),
        cmocka_unit_test(importances_are_followed),
        cmocka_unit_test(advice_makes_it_fit),
        cmocka_unit_test(devices_left_out_have_a_reason),
        cmocka_unit_test(other_planners_are_measured_by_dp),
        cmocka_unit_test(the_report_has_what_the_getters_say),
        cmocka_unit_test(short_buffers_are_filled),
        cmocka_unit_test(the_drawing_is_xml),
        cmocka_unit_test(the_xml_check_can_fail),
        cmocka_unit_test(a_saved_plan_gives_the_same_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
