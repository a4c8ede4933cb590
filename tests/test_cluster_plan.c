/* Clusters whose layers the planner splits: what fits is loaded, what only slows things is left out
 * and says so, plans can be kept and carried out again. */
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cluster_plan.h"
#include "../src/profile.h"
#include "cluster_support.h"
#include "planner_support.h"

static const char default_model[] = "src/assets/stories-4m-f16.gguf";

enum { WORKERS = 3, TOKENS = 4, TEXT_MAX = 1 << 20 };

/* Six layers of 1.1 MiB each, and half as much KV cache. */
static vt_model *open_model(uint64_t memory_bytes, const char *precision, const char *plan)
{
    vt_model *model;
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.threads = 1;
    params.memory_bytes = memory_bytes;
    params.precision = precision;
    params.plan_json = plan;
    if (vt_model_open(default_model, &params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

/* A device that has others' speed times `speed`. */
static vt_profile profile_of(double speed)
{
    vt_profile p = {.facts = {.name = "test", .threads = 1}};
    for (int k = VTI_PLAN_ATTN; k < VTI_PLAN_KINDS; k++)
        for (int i = 0; i < VTI_PLAN_PRECISIONS * VTI_PHASES; i++)
            p.facts.cost[k][i / VTI_PHASES][i % VTI_PHASES] = (vti_profile_cost){
                .per_mac = (float)(1e-8 / speed), .per_weight_byte = (float)(1e-8 / speed)};
    return p;
}

static test_worker start(uint64_t memory_bytes, const vt_profile *profile)
{
    vt_worker_params params = vt_worker_params_default();
    params.memory_bytes = memory_bytes;
    params.profile = profile;
    params.threads = 1;
    return test_worker_start_with(&params, NULL);
}

typedef struct kept_log {
    char text[16384];
    size_t bytes;
} kept_log;

static void keep_log(void *user, vt_log_level level, const char *message)
{
    kept_log *log = user;
    if (level == VT_LOG_DEBUG) return;
    int bytes = snprintf(log->text + log->bytes, sizeof log->text - log->bytes, "%s\n", message);
    if (bytes > 0 && log->bytes + (size_t)bytes < sizeof log->text) log->bytes += (size_t)bytes;
}

static vt_status open_cluster(const vt_model *model, const test_worker *workers, size_t count,
                              vt_cluster_params params, vt_cluster **out, vt_error *err)
{
    const char *addresses[WORKERS + 5];
    for (size_t i = 0; i < count; i++) addresses[i] = workers[i].address;
    params.devices = addresses;
    params.device_count = count;
    return vt_cluster_open(model, &params, out, err);
}

static void open_well(const vt_model *model, const test_worker *workers, size_t count,
                      vt_cluster_params params, vt_cluster **out)
{
    vt_error err;
    if (open_cluster(model, workers, count, params, out, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static vt_device_info device(const vt_cluster *cluster, size_t index)
{
    vt_device_info info;
    assert_int_equal(vt_cluster_get_device(cluster, index, &info), VT_OK);
    return info;
}

static vt_status tell(const vt_model *model, vt_cluster *cluster, vt_token *text, vt_error *err)
{
    vt_session *session;
    vt_session_params params = vt_session_params_default();
    params.cluster = cluster;
    params.sampling.temperature = 0;
    vt_status status = vt_session_open(model, &params, &session, err);
    if (status != VT_OK) return status;
    status = vt_session_feed(session, (const vt_token[]){5, 6, 7}, 3, err);
    for (int i = 0; i < TOKENS && status == VT_OK; i++)
        status = vt_session_next(session, &text[i], err);
    vt_session_close(session);
    return status;
}

static vt_token expected[TOKENS]; /* what one device alone writes */

static void tells_the_same(const vt_model *model, vt_cluster *cluster)
{
    vt_error err;
    vt_token text[TOKENS];
    if (tell(model, cluster, text, &err) != VT_OK) fail_msg("%s", err.message);
    assert_memory_equal(text, expected, sizeof text);
}

static int tell_alone(void **state)
{
    (void)state;
    vt_error err;
    vt_model *alone = open_model(0, NULL, NULL);
    vt_status status = tell(alone, NULL, expected, &err);
    vt_model_close(alone);
    return status == VT_OK ? 0 : -1;
}

static void end(test_worker *workers, size_t count)
{
    for (size_t i = 0; i < count; i++) assert_int_equal(test_worker_end(&workers[i], SIGTERM), 0);
}

/* --- who gets layers -------------------------------------------------------------------------- */

static void left_out_with_a_reason(void **state)
{
    (void)state;
    test_worker workers[WORKERS] = {start(3 << 20, NULL), start(0, NULL), start(0, NULL)};
    kept_log log = {.bytes = 0};
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster *cluster, *other;
    params.log = (vt_log){keep_log, &log};
    vt_model *model = open_model(0, NULL, NULL);
    open_well(model, workers, WORKERS, params, &cluster);
    assert_int_equal(device(cluster, 0).layer_count, 6); /* all are alike, and hops cost */
    assert_non_null(strstr(device(cluster, 1).left_out, "holds no layer"));
    for (size_t i = 2; i <= WORKERS; i++) {
        vt_device_info info = device(cluster, i);
        assert_int_equal(info.layer_count, 0);
        assert_non_null(strstr(info.left_out, "all devices are alike, as is assumed"));
    }
    assert_non_null(strstr(log.text, workers[1].address));
    tells_the_same(model, cluster);
    /* They are free for others. */
    const uint32_t split[] = {2, 2, 2};
    params.split = split, params.split_count = 3;
    open_well(model, workers + 1, 2, params, &other);
    assert_null(device(other, 1).left_out);
    vt_cluster_close(other);
    vt_cluster_close(cluster);
    vt_model_close(model);
    end(workers, WORKERS);
}

/* As many layers as fit, the rest on one of the others; not evenly. */
static void memory_decides(void **state)
{
    (void)state;
    test_worker workers[2] = {start(0, NULL), start(3 << 20, NULL)};
    vt_cluster *cluster;
    vt_model *model = open_model(13 << 20, NULL, NULL);
    open_well(model, workers, 2, vt_cluster_params_default(), &cluster);
    uint32_t here = device(cluster, 0).layer_count;
    assert_true(here < 6 && device(cluster, 1).layer_count == 6 - here);
    assert_int_equal(device(cluster, 2).layer_count, 0);
    tells_the_same(model, cluster);
    vt_cluster_close(cluster);
    vt_model_close(model);
    end(workers, 2);
}

/* The fast one gets the work, wherever it stands in the list; a slow one none. */
static void speed_decides(void **state)
{
    (void)state;
    vt_profile slow = profile_of(0.1), fast = profile_of(100), same = profile_of(1);
    test_worker workers[2] = {start(0, &slow), start(0, &fast)};
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster *cluster;
    vt_cluster_prediction with, without;
    params.profile = &same;
    vt_model *model = open_model(0, NULL, NULL);
    open_well(model, workers, 2, params, &cluster);
    assert_int_equal(device(cluster, 2).layer_count, 6);
    double slower, faster;
    const char *figures = strstr(device(cluster, 1).left_out, "no faster with it: about ");
    assert_non_null(figures);
    assert_int_equal(sscanf(figures, "no faster with it: about %lf ms per token, %lf ms without",
                            &slower, &faster), 2);
    assert_true(slower >= faster && faster > 0);
    tells_the_same(model, cluster);
    vt_cluster_get_prediction(cluster, &with);
    vt_cluster_close(cluster);
    open_well(model, workers, 1, params, &cluster);
    assert_int_equal(device(cluster, 0).layer_count, 6);
    vt_cluster_get_prediction(cluster, &without);
    assert_true(with.is_known && without.is_known && with.tpot_s < without.tpot_s);
    vt_cluster_close(cluster);
    vt_model_close(model);
    end(workers, 2);
}

static void qos_that_is_missed_is_said(void **state)
{
    (void)state;
    vt_profile slow = profile_of(0.1);
    test_worker worker = start(0, &slow);
    kept_log log = {.bytes = 0};
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster_prediction prediction;
    vt_cluster *cluster;
    params.profile = &slow;
    params.tpot_ms = 1;
    params.log = (vt_log){keep_log, &log};
    vt_model *model = open_model(0, NULL, NULL);
    open_well(model, &worker, 1, params, &cluster);
    vt_cluster_get_prediction(cluster, &prediction);
    assert_true(prediction.is_known && !prediction.meets_qos && prediction.tpot_s > 1e-3);
    assert_non_null(strstr(log.text, "slower than wanted"));
    vt_cluster_close(cluster);
    vt_model_close(model);
    end(&worker, 1);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Whatever the budgets: what is planned can be loaded and run; else it is said what is short. */
static void what_is_planned_fits(void **state)
{
    (void)state;
    test_random random = {0x6d};
    unsigned fitting = 0, cases = test_is_emulated() ? 2 : 8;
    for (unsigned i = 0; i < cases; i++) {
        test_worker workers[2];
        vt_cluster *cluster;
        vt_error err;
        for (int w = 0; w < 2; w++)
            workers[w] = start((4ull << 20) + test_random_u64(&random) % (8 << 20), NULL);
        uint64_t here = (4ull << 20) + test_random_u64(&random) % (9 << 20);
        vt_model *model = open_model(here, NULL, NULL);
        vt_status status = open_cluster(model, workers, 2, vt_cluster_params_default(), &cluster,
                                        &err);
        if (status == VT_OK) {
            tells_the_same(model, cluster);
            fitting++;
        } else if (status != VT_ERR_MEMORY || !strstr(err.message, "would help")) {
            fail_msg("case %u: %s", i, err.message);
        }
        vt_cluster_close(cluster);
        vt_model_close(model);
        end(workers, 2);
    }
    assert_true(test_is_emulated() || (fitting >= 1 && fitting < cases));
}

/* The main device alone is short: it says what for, what its budget went to, and what others have. */
static void main_is_short(const vt_model *model, const test_worker *workers, vt_error *err)
{
    double has, limit, needs, lacks;
    vt_cluster *cluster;
    vt_cluster_params params = vt_cluster_params_default();
    assert_int_equal(open_cluster(model, workers, 2, params, &cluster, err), VT_ERR_MEMORY);
    assert_null(strstr(err->message, "another device"));
    assert_non_null(strstr(err->message, "other devices cannot hold what this one lacks"));
    if (sscanf(err->message, "not enough memory: this device has %lf MiB of %lf MiB (the rest is "
               "for messages) and needs %lf MiB for the output and the conversation (%lf MiB short)",
               &has, &limit, &needs, &lacks) != 4)
        fail_msg("%s", err->message);
    assert_true(limit == 4 && has < limit && needs > has && lacks > 0);
    for (int i = 0; i < 2; i++) assert_non_null(strstr(err->message, workers[i].address));
    assert_non_null(strstr(err->message, "room for "));
    /* With what it asks for it works. */
    const char *help = strstr(err->message, " MiB more for this device");
    assert_non_null(help);
    while (help[-1] != ' ') help--;
    double mib = limit + atof(help);
    vt_error none;
    vt_model *enough = open_model((uint64_t)(mib * 1048576), NULL, NULL);
    if (open_cluster(enough, workers, 2, params, &cluster, &none) != VT_OK)
        fail_msg("%s\n%s", err->message, none.message);
    vt_cluster_close(cluster);
    vt_model_close(enough);
}

/* Finds what would help in a message of what is missing. */
static const char *find_help(const vt_error *err, const char *what)
{
    const char *at = strstr(err->message, what);
    if (!at || !strstr(err->message, " short)")) fail_msg("no \"%s\": %s", what, err->message);
    return at + strlen(what);
}

/* What the message says would help does help. */
static void what_would_help(void **state)
{
    (void)state;
    enum { HERE = 8 << 20, THERE = 7 << 20, LONG = 8192 };
    if (test_is_emulated()) skip(); /* quantises the whole model, twice */
    test_worker workers[WORKERS] = {start(THERE, NULL), start(THERE, NULL)};
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster *cluster;
    vt_error err;
    vt_model *model = open_model(16 << 20, "I4", NULL);
    params.context_tokens = LONG;
    assert_int_equal(open_cluster(model, workers, 2, params, &cluster, &err), VT_ERR_MEMORY);
    params.context_tokens = (uint32_t)atoi(find_help(&err, "a context of "));
    assert_true(params.context_tokens >= 256 && params.context_tokens < LONG);
    open_well(model, workers, 2, params, &cluster);
    vt_cluster_close(cluster);
    vt_model_close(model);

    params.context_tokens = 0;
    model = open_model(HERE, NULL, NULL);
    assert_int_equal(open_cluster(model, workers, 2, params, &cluster, &err), VT_ERR_MEMORY);
    printf("%s\n", err.message);
    vt_model_close(model);
    model = open_model(HERE, find_help(&err, "precision ")[1] == '8' ? "I8" : "I4", NULL);
    open_well(model, workers, 2, params, &cluster);
    vt_cluster_close(cluster);
    vt_model_close(model);

    /* Others cannot hold what only the main device has. */
    vt_error here;
    test_worker large[2] = {start(64 << 20, NULL), start(64 << 20, NULL)};
    model = open_model(4 << 20, NULL, NULL);
    main_is_short(model, large, &here);
    end(large, 2);
    /* Here the others have no room for the layers either. */
    assert_int_equal(open_cluster(model, workers, 2, params, &cluster, &here), VT_ERR_MEMORY);
    find_help(&here, " MiB more for this device and another device that lends ");
    vt_model_close(model);

    /* A sixteenth is for what is on its way. */
    double mib = atof(find_help(&err, "another device that lends ")) + 0.1;
    workers[2] = start((uint64_t)(mib * 1048576 * 16 / 15), NULL);
    model = open_model(HERE, NULL, NULL);
    open_well(model, workers, WORKERS, params, &cluster);
    vt_cluster_close(cluster);
    vt_model_close(model);
    end(workers, WORKERS);
}

/* --- plans as text ---------------------------------------------------------------------------- */

static char *text_of(const vt_cluster *cluster)
{
    size_t bytes = vt_cluster_plan_text(cluster, NULL, 0);
    assert_true(bytes > 100 && bytes < TEXT_MAX);
    char *text = malloc(bytes + 1);
    assert_int_equal(vt_cluster_plan_text(cluster, text, bytes + 1), bytes);
    assert_int_equal(strlen(text), bytes);
    return text;
}

static void has_split(const vt_cluster *cluster, const uint32_t *split)
{
    for (size_t i = 0; i <= WORKERS; i++)
        assert_int_equal(device(cluster, i).layer_count, split[i]);
}

static void plans_are_carried_out_again(void **state)
{
    (void)state;
    test_worker workers[WORKERS] = {start(0, NULL), start(0, NULL), start(0, NULL)};
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster *cluster;
    const uint32_t split[] = {1, 3, 0, 2};
    params.split = split, params.split_count = 4;
    vt_model *model = open_model(0, NULL, NULL);
    open_well(model, workers, WORKERS, params, &cluster);
    char *plan = text_of(cluster);
    vt_cluster_close(cluster);
    vt_model_close(model);

    params = vt_cluster_params_default();
    params.plan_json = plan;
    model = open_model(0, NULL, plan);
    open_well(model, workers, WORKERS, params, &cluster);
    has_split(cluster, split);
    assert_non_null(strstr(device(cluster, 2).left_out, "the plan"));
    tells_the_same(model, cluster);
    char *again = text_of(cluster);
    vt_cluster_close(cluster);
    vt_model_close(model);

    /* And what was planned, too: the times of both say the same. */
    model = open_model(0, NULL, again);
    params.plan_json = again;
    open_well(model, workers, WORKERS, params, &cluster);
    has_split(cluster, split);
    vt_cluster_close(cluster);
    vt_model_close(model);
    free(plan);
    free(again);
    end(workers, WORKERS);
}

/* Replaces the first `old` behind `after`; both have the same length. */
static void change(char *text, const char *after, const char *old, const char *replacement)
{
    char *at = strstr(text, after);
    assert_non_null(at);
    at = strstr(at, old);
    assert_non_null(at);
    memcpy(at, replacement, strlen(replacement));
}

/* Every unit at its own precision, on whatever device; what travels does so in full. */
static void mixed_precisions_on_several_devices(void **state)
{
    (void)state;
    test_worker workers[2] = {start(0, NULL), start(0, NULL)};
    kept_log log = {.bytes = 0};
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster *cluster;
    vt_error err;
    vt_token alone[TOKENS], together[TOKENS];
    const uint32_t split[] = {2, 2, 2};
    params.split = split, params.split_count = 3;
    vt_model *model = open_model(0, NULL, NULL);
    open_well(model, workers, 2, params, &cluster);
    char *plan = text_of(cluster);
    vt_cluster_close(cluster);
    vt_model_close(model);

    const char *const units[] = {"\"unit\": 2,", "\"unit\": 5,", "\"unit\": 10,", "\"unit\": 12,"};
    for (int i = 0; i < (test_is_emulated() ? 1 : 4); i++)
        change(plan, units[i], "\"precision\": \"F16\"",
               i % 2 ? "\"precision\": \"I4\" " : "\"precision\": \"I8\" ");
    change(plan, "\"unit\": 7,", "\"wire\": \"F32\"", "\"wire\": \"F16\"");
    char *copied = malloc(strlen(plan) + 32), *at = strstr(plan, "\"unit\": 3,");
    assert_true(copied && at);
    sprintf(copied, "%.*s\"replica\": 1, %s", (int)(at - plan), plan, at);
    free(plan);
    plan = copied;
    params = vt_cluster_params_default();
    params.plan_json = plan;
    params.log = (vt_log){keep_log, &log};
    model = open_model(0, NULL, plan);
    if (tell(model, NULL, alone, &err) != VT_OK) fail_msg("%s", err.message);
    vt_model_close(model);
    model = open_model(0, NULL, plan);
    open_well(model, workers, 2, params, &cluster);
    if (tell(model, cluster, together, &err) != VT_OK) fail_msg("%s", err.message);
    assert_memory_equal(together, alone, sizeof alone);
    assert_non_null(strstr(log.text, "activations travel as F32"));
    assert_non_null(strstr(log.text, "keys and values are not copied"));
    vt_cluster_close(cluster);
    vt_model_close(model);
    free(plan);
    end(workers, 2);
}

static void refuse(const vt_model *model, const test_worker *workers, size_t count,
                   const char *plan, vt_status wanted, const char *message)
{
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster *cluster;
    vt_error err = {.message = ""};
    params.plan_json = plan;
    vt_status status = open_cluster(model, workers, count, params, &cluster, &err);
    if (status != wanted || !strstr(err.message, message))
        fail_msg("%d: %s (expected: %s)", status, err.message, message);
    assert_null(cluster);
}

static void plans_that_cannot_be_carried_out(void **state)
{
    (void)state;
    test_worker workers[2] = {start(0, NULL), start(0, NULL)};
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster *cluster;
    const uint32_t split[] = {3, 3};
    vt_model *model = open_model(0, NULL, NULL);
    params.split = split, params.split_count = 2;
    open_well(model, workers, 1, params, &cluster);
    char *plan = text_of(cluster), *changed = malloc(strlen(plan) + 1);
    vt_cluster_close(cluster);

    refuse(model, workers, 2, plan, VT_ERR_ARGUMENT, "the plan is for 2 devices");
    refuse(model, workers, 1, "{}", VT_ERR_FORMAT, "plan");
    /* Unit 5 is ATTN(2), whose layer stays on device 0 otherwise. */
    strcpy(changed, plan);
    change(changed, "\"unit\": 5,", "\"precision\": \"F16\"", "\"precision\": \"I4\" ");
    refuse(model, workers, 1, changed, VT_ERR_ARGUMENT, "ATTN(2) at I4");
    strcpy(changed, plan);
    change(changed, "\"unit\": 5,", "\"home\": 0", "\"home\": 1");
    refuse(model, workers, 1, changed, VT_ERR_UNSUPPORTED, "voltron-run plan --planner layers");
    params = vt_cluster_params_default();
    params.plan_json = plan;
    params.split_evenly = true;
    vt_error err;
    assert_int_equal(open_cluster(model, workers, 1, params, &cluster, &err), VT_ERR_ARGUMENT);

    /* Device 1 is not the one that it was. */
    vt_model *small = open_model(0, NULL, plan);
    test_worker tiny = start(3 << 20, NULL);
    refuse(small, &tiny, 1, plan, VT_ERR_MEMORY, tiny.address);
    vt_model_close(small);
    free(plan);
    free(changed);
    vt_model_close(model);
    end(workers, 2);
    end(&tiny, 1);
}

/* Of all plans only rows of whole layers, the same in both phases; the message is about the first
 * unit that is otherwise. */
static void only_chains_are_carried_out(void **state)
{
    (void)state;
    static planner_case c;
    static vti_plan chain, plan;
    test_random random = {3};
    unsigned u;
    void *scratch = malloc(vti_plan_scratch_bytes());
    do planner_random(&c, &random, 3, 6, 8, 0.9);
    while (!vti_plan_search(&c.request, VTI_SEARCH_LAYERS, NULL, scratch, &chain) ||
           chain.place[VTI_DECODE][2].home == chain.place[VTI_DECODE][10].home);
    free(scratch);
    assert_null(vti_plan_is_chain(&chain, &u));
    for (unsigned unit = 0; unit < chain.units; unit++) {
        /* spread, elsewhere in prefill, with another home */
        for (int kind = 0; kind < 3; kind++) {
            vti_plan_place *decode = &plan.place[VTI_DECODE][unit];
            plan = chain;
            unsigned d = decode->home, e = (d + 1) % 3;
            if (kind == 0) decode->shares[e] = 1, decode->shares[d]--;
            if (kind == 0) plan.place[VTI_PREFILL][unit] = *decode;
            if (kind == 1) plan.place[VTI_PREFILL][unit].home = (uint8_t)e;
            if (kind == 2) plan.place[VTI_PREFILL][unit].home = decode->home = (uint8_t)e;
            if (kind == 0 && decode->shares[d] == 0) continue;
            assert_non_null(vti_plan_is_chain(&plan, &u));
            assert_int_equal(u, unit);
        }
    }
    /* The last layer back on the device of the first; half a layer. */
    for (unsigned first = 11; first <= 12; first++) {
        plan = chain;
        for (unsigned unit = first; unit <= 12; unit++)
            for (int phase = 0; phase < VTI_PHASES; phase++)
                plan.place[phase][unit] = chain.place[phase][1];
        assert_non_null(vti_plan_is_chain(&plan, &u));
        assert_int_equal(u, first);
    }
}

/* More devices than plans are for. */
static void many_devices_share_evenly(void **state)
{
    (void)state;
    test_worker workers[8];
    kept_log log = {.bytes = 0};
    vt_cluster_params params = vt_cluster_params_default();
    vt_cluster *cluster;
    params.log = (vt_log){keep_log, &log};
    for (int i = 0; i < 8; i++) workers[i] = start(0, NULL);
    vt_model *model = open_model(0, NULL, NULL);
    open_well(model, workers, 8, params, &cluster);
    for (size_t i = 0; i < 6; i++) assert_int_equal(device(cluster, i).layer_count, 1);
    assert_non_null(strstr(log.text, "split evenly"));
    assert_int_equal(vt_cluster_plan_text(cluster, NULL, 0), 0);
    vt_cluster_close(cluster);
    vt_model_close(model);
    end(workers, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(left_out_with_a_reason),
        cmocka_unit_test(memory_decides),
        cmocka_unit_test(speed_decides),
        cmocka_unit_test(qos_that_is_missed_is_said),
        cmocka_unit_test(what_is_planned_fits),
        cmocka_unit_test(what_would_help),
        cmocka_unit_test(plans_are_carried_out_again),
        cmocka_unit_test(mixed_precisions_on_several_devices),
        cmocka_unit_test(plans_that_cannot_be_carried_out),
        cmocka_unit_test(only_chains_are_carried_out),
        cmocka_unit_test(many_devices_share_evenly),
    };
    return cmocka_run_group_tests(tests, tell_alone, NULL);
}
