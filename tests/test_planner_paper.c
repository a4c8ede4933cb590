/* What the Voltron paper measured about MP and TP, as decisions of the planner: round figures of
 * devices, models and radios of the classes it used, memory to spare, and one thing changed at a
 * time. */
#include <stdlib.h>
#include <string.h>

#include "../net/medium.h"
#include "../planner/planner.h"
#include "support.h"

static void *scratch;

enum { WIDTH = 5120, HEAD_WIDTH = 128, HEADS = 40, KV_HEADS = 8, FFN_WIDTH = 13824 };

typedef struct paper_case {
    vti_plan_cluster cluster;
    vti_plan_model model;
    vti_plan_request request;
} paper_case;

/* A tablet's eight cores: memory bandwidth, and what its F16 kernels compute in prefill. */
static void set_device(vti_plan_device *device, double slower)
{
    device->memory_bytes = 0x1p40;
    for (int kind = 0; kind < VTI_PLAN_KINDS; kind++)
        for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (int phase = 0; phase < VTI_PHASES; phase++)
                device->cost[kind][p][phase] = (vti_plan_coefficients){
                    .fixed = 20e-6 * slower,
                    .per_mac = slower / 400e9, .per_weight_byte = slower / 30e9,
                    .per_kv_mac = slower / 400e9,
                    /* 16 tokens of a prompt share what is read */
                    .per_kv_byte = slower / (phase == VTI_PREFILL ? 16 * 30e9 : 30e9)};
}

/* Signals of Wi-Fi Direct, whose links share one radio. */
static const double near_by = -45, at_60_dbm = -60, at_70_dbm = -70;

static void set_cluster(vti_plan_cluster *cluster, unsigned devices, double slower, double rssi_dbm)
{
    const vti_medium *medium = vti_medium_find("wifi-direct");
    const vti_plan_link link = {vti_medium_latency_s(medium, rssi_dbm),
                                vti_medium_bytes_per_s(medium, rssi_dbm), 1};
    memset(cluster, 0, sizeof *cluster);
    cluster->devices = devices;
    for (unsigned d = 0; d < devices; d++) {
        set_device(&cluster->device[d], d ? slower : 1);
        for (unsigned e = 0; e < devices; e++) cluster->link[d][e] = link;
    }
}

static vti_plan_class with_weights(vti_plan_class class_, double values)
{
    class_.macs = values;
    class_.weight_bytes[VTI_PLAN_F16] = 2 * values;
    class_.weight_bytes[VTI_PLAN_I8] = values + values / 16;
    class_.weight_bytes[VTI_PLAN_I4] = values / 2 + values / 16;
    class_.input_width = class_.output_width = WIDTH;
    return class_;
}

static vti_plan_class attention(unsigned kv_heads, double window)
{
    unsigned queries = HEADS / kv_heads;
    vti_plan_class class_ = {.kind = VTI_PLAN_ATTN, .shards = kv_heads, .window = window,
                             .kv_bytes = 4 * HEAD_WIDTH, .kv_macs = 2.0 * queries * HEAD_WIDTH};
    return with_weights(class_, (double)WIDTH * HEAD_WIDTH * (2 * queries + 2));
}

static vti_plan_class mha(void) { return attention(HEADS, 0); }
static vti_plan_class gqa(void) { return attention(KV_HEADS, 0); }
static vti_plan_class swa(void) { return attention(KV_HEADS, 1024); }

static vti_plan_class dense_ffn(void)
{
    vti_plan_class class_ = {.kind = VTI_PLAN_FFN, .shards = FFN_WIDTH / 256};
    return with_weights(class_, 3.0 * WIDTH * 256);
}

/* Of 60 experts a token goes through 4, and through a shared one as wide as these together. */
static vti_plan_class moe_ffn(void)
{
    enum { EXPERT_WIDTH = 640 };
    vti_plan_class class_ = {.kind = VTI_PLAN_MOE, .shards = 60, .active_shards = 4};
    class_ = with_weights(class_, 3.0 * WIDTH * EXPERT_WIDTH);
    class_.always_macs = class_.macs * 4 / 60;
    for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
        class_.always_bytes[p] = class_.weight_bytes[p] * 4 / 60;
    return class_;
}

/* EMBED, `layers` times the units given, HEAD. */
static void set_model(paper_case *c, unsigned layers, const vti_plan_class *units, unsigned n)
{
    vti_plan_model *m = &c->model;
    memset(m, 0, sizeof *m);
    m->classes = n + 2, m->units = layers * n + 2;
    m->class_[0] = (vti_plan_class){.kind = VTI_PLAN_EMBED, .shards = 1};
    memcpy(&m->class_[1], units, n * sizeof *units);
    vti_plan_class head = {.kind = VTI_PLAN_HEAD, .shards = 1, .output_width = 64};
    m->class_[n + 1] = with_weights(head, 1024);
    for (unsigned u = 1; u + 1 < m->units; u++) m->unit_class[u] = (uint8_t)(1 + (u - 1) % n);
    m->unit_class[m->units - 1] = (uint8_t)(n + 1);
    c->request = (vti_plan_request){.cluster = &c->cluster, .model = m, .wire = VTI_WIRE_F16,
                                    .prompt_tokens = 256, .context_tokens = 2048, .ttft_s = 10,
                                    .tpot_s = 0.4};
}

static void set_precision(paper_case *c, vti_plan_precision p)
{
    memset(c->request.precision, (int)p, sizeof c->request.precision);
}

/* One unit on two equal devices near each other. */
static paper_case *one(vti_plan_class unit)
{
    static paper_case c;
    set_cluster(&c.cluster, 2, 1, near_by);
    set_model(&c, 1, &unit, 1);
    return &c;
}

static const vti_plan *search(paper_case *c, vti_plan_search_kind kind)
{
    static vti_plan plans[VTI_SEARCHES];
    unsigned where;
    const char *wrong = vti_plan_check_request(&c->request, &where);
    if (wrong) fail_msg("%u: %s", where, wrong);
    assert_true(vti_plan_search(&c->request, kind, NULL, scratch, &plans[kind]));
    return &plans[kind];
}

/* How many units are TP, every `stride`th from `first` on. */
static unsigned tp_units(const vti_plan *plan, vti_plan_phase phase, unsigned first,
                         unsigned stride)
{
    unsigned count = 0;
    for (unsigned u = first; u + 1 < plan->units; u += stride) {
        unsigned mask = vti_plan_mask(&plan->place[phase][u]);
        count += (mask & (mask - 1)) != 0;
    }
    return count;
}

/* dp's choice, which is proven to be the fastest, and greedy's are the same for a single unit. */
static bool is_tp(paper_case *c, vti_plan_phase phase)
{
    const vti_plan *best = search(c, VTI_SEARCH_DP), *greedy = search(c, VTI_SEARCH_GREEDY);
    assert_int_equal(best->proof, VTI_PROOF_UNCONFINED);
    assert_int_equal(tp_units(best, phase, 1, 1), tp_units(greedy, phase, 1, 1));
    return tp_units(best, phase, 1, 1) == 1;
}

/* --- what kind of unit ------------------------------------------------------------------------ */

static void attention_variants(void **state)
{
    (void)state;
    assert_true(is_tp(one(mha()), VTI_DECODE));
    assert_false(is_tp(one(gqa()), VTI_DECODE));
    assert_false(is_tp(one(swa()), VTI_DECODE));
}

static void ffn_variants(void **state)
{
    (void)state;
    assert_true(is_tp(one(dense_ffn()), VTI_DECODE));
    assert_false(is_tp(one(moe_ffn()), VTI_DECODE));
}

/* --- precision -------------------------------------------------------------------------------- */

static void lower_precision_is_for_mp(void **state)
{
    (void)state;
    bool before = true;
    for (vti_plan_precision p = VTI_PLAN_F16; p < VTI_PLAN_PRECISIONS; p++) {
        paper_case *c = one(dense_ffn());
        set_precision(c, p);
        bool tp = is_tp(c, VTI_DECODE);
        assert_true(before || !tp); /* never back */
        assert_int_equal(tp, p == VTI_PLAN_F16 || (p == VTI_PLAN_I8 && tp));
        before = tp;
    }
    assert_false(before);
}

/* --- wireless network ------------------------------------------------------------------------- */

static void weak_signal(void **state)
{
    (void)state;
    const double signals[] = {near_by, at_60_dbm, at_70_dbm};
    for (unsigned i = 0; i < 3; i++) {
        paper_case *c = one(dense_ffn());
        set_cluster(&c->cluster, 2, 1, signals[i]);
        assert_int_equal(is_tp(c, VTI_DECODE), i < 2);
        c = one(gqa());
        set_cluster(&c->cluster, 2, 1, signals[i]);
        assert_false(is_tp(c, VTI_DECODE));
    }
}

/* --- conversations ---------------------------------------------------------------------------- */

static void long_contexts(void **state)
{
    (void)state;
    static const double tokens[] = {512, 2048, 8192, 32768, 65536};
    bool before = false;
    for (unsigned i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        paper_case *c = one(gqa());
        c->request.context_tokens = tokens[i];
        bool tp = is_tp(c, VTI_DECODE);
        assert_true(tp || !before);
        assert_false(is_tp(c, VTI_PREFILL));
        c->request.prompt_tokens = tokens[i];
        assert_false(is_tp(c, VTI_PREFILL));
        before = tp;
    }
    assert_true(before);
}

/* --- devices ---------------------------------------------------------------------------------- */

static void big_gaps_are_for_mp(void **state)
{
    (void)state;
    static const double slower[] = {1, 1.5, 2, 4, 8};
    bool before = true;
    for (unsigned i = 0; i < sizeof slower / sizeof *slower; i++) {
        paper_case *c = one(dense_ffn());
        set_cluster(&c->cluster, 2, slower[i], near_by);
        bool tp = is_tp(c, VTI_DECODE);
        assert_true(before || !tp);
        before = tp;
    }
    assert_false(before);
}

/* --- whole models ----------------------------------------------------------------------------- */

/* An office: three equal devices on one radio. By the paper's search dense FFNs are TP in decode and
 * GQA is MP; MoE stays MP; in prefill nothing is TP. */
static void whole_models(void **state)
{
    (void)state;
    enum { LAYERS = 24 };
    static paper_case c;
    const vti_plan_class dense[] = {gqa(), dense_ffn()}, moe[] = {gqa(), moe_ffn()};
    set_cluster(&c.cluster, 3, 1, near_by);
    set_model(&c, LAYERS, dense, 2);
    const vti_plan *plan = search(&c, VTI_SEARCH_GREEDY);
    assert_int_equal(tp_units(plan, VTI_DECODE, 2, 2), LAYERS);
    assert_int_equal(tp_units(plan, VTI_DECODE, 1, 2), 0);
    assert_int_equal(tp_units(plan, VTI_PREFILL, 1, 1), 0);
    assert_int_equal(tp_units(search(&c, VTI_SEARCH_DP), VTI_PREFILL, 1, 1), 0);
    set_model(&c, LAYERS, moe, 2);
    assert_int_equal(tp_units(search(&c, VTI_SEARCH_GREEDY), VTI_DECODE, 1, 1), 0);
}

/* Beyond the paper: where two devices send their sums to each other instead of to a home, TP units
 * in a row cost one round each. Then GQA between TP FFNs is TP too, and the token comes sooner. */
static void exchange_makes_tp_cheaper(void **state)
{
    (void)state;
    enum { LAYERS = 24 };
    static paper_case c;
    const vti_plan_class dense[] = {gqa(), dense_ffn()};
    set_cluster(&c.cluster, 2, 1, near_by);
    set_model(&c, LAYERS, dense, 2);
    const vti_plan *plan = search(&c, VTI_SEARCH_DP);
    assert_int_equal(tp_units(plan, VTI_DECODE, 2, 1), 2 * LAYERS - 1);
    for (unsigned u = 2; u + 2 < c.model.units; u++)
        assert_true(plan->place[VTI_DECODE][u].exchange);
    assert_true(plan->tpot_s < 0.95 * search(&c, VTI_SEARCH_GREEDY)->tpot_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_variants),
        cmocka_unit_test(ffn_variants),
        cmocka_unit_test(lower_precision_is_for_mp),
        cmocka_unit_test(weak_signal),
        cmocka_unit_test(long_contexts),
        cmocka_unit_test(big_gaps_are_for_mp),
        cmocka_unit_test(whole_models),
        cmocka_unit_test(exchange_makes_tp_cheaper),
    };
    scratch = malloc(vti_plan_scratch_bytes());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
