/* Broken plans and requests are refused, for the reason that they are broken. */
#include "planner_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *scratch;

/* --- plans ------------------------------------------------------------------------------------ */

/* Breaks one thing; false if this plan has nothing of the kind. `u` is neither EMBED nor HEAD. */
typedef bool breaker(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u);

static bool fewer_units(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase, (void)u;
    plan->units--;
    return true;
}

static bool more_devices(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase, (void)u;
    plan->devices++;
    return true;
}

static bool more_pruned(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase, (void)u;
    plan->pruned_shards++;
    return true;
}

static bool pruned_twice(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    unsigned free = 0;
    (void)phase;
    while (plan->pruned[u][0] >> free & 1) free++;
    plan->pruned[u][0] |= UINT64_C(1) << free;
    return free < planner_class(&c->request, u)->shards;
}

static bool pruned_outside(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase;
    uint64_t before = plan->pruned[u][0];
    plan->pruned[u][3] |= UINT64_C(1) << 63;
    plan->pruned[u][0] &= before - 1; /* as many as before */
    return before != 0;
}

static bool other_precision(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase;
    plan->precision[u] = (uint8_t)((plan->precision[u] + 1) % VTI_PLAN_PRECISIONS);
    return true;
}

static bool shard_lost(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    for (unsigned d = 0; d < c->cluster.devices; d++)
        if (plan->place[phase][u].shares[d]) {
            plan->place[phase][u].shares[d]--;
            return true;
        }
    return false;
}

static bool shard_twice(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    plan->place[phase][u].shares[c->cluster.devices - 1]++;
    return true;
}

static bool shard_outside(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    if (c->cluster.devices == 8) return false;
    shard_lost(c, plan, phase, u);
    plan->place[phase][u].shares[7]++;
    return true;
}

static bool home_outside(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    plan->place[phase][u].home = (uint8_t)c->cluster.devices;
    return true;
}

static bool stream_from_nobody(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    unsigned holders = vti_plan_holders(&plan->place[phase][u - 1]);
    for (unsigned d = 0; d < c->cluster.devices; d++)
        if (!(holders >> d & 1)) {
            plan->place[phase][u].from = (uint8_t)d;
            return true;
        }
    return false;
}

static bool stream_from_outside(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c;
    plan->place[phase][u].from = 200;
    return true;
}

static bool unknown_wire(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c;
    plan->place[phase][u].wire = VTI_WIRES;
    return true;
}

static bool exchange_alone(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    unsigned mask = vti_plan_mask(&plan->place[phase][u]);
    (void)c;
    plan->place[phase][u].exchange = 1;
    return (mask & (mask - 1)) == 0;
}

static bool exchange_unknown(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c;
    plan->place[phase][u].exchange = 2;
    return true;
}

static bool exchange_of_others(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    vti_plan_place *place = &plan->place[phase][u];
    unsigned mask = vti_plan_mask(place);
    if (c->cluster.devices < 2 || (mask & (mask - 1)) == 0) return false;
    place->exchange = 1;
    place->home = (uint8_t)(31 - __builtin_clz(mask));
    return true;
}

static bool head_elsewhere(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)u;
    plan->place[phase][plan->units - 1].home = 1;
    return c->cluster.devices > 1;
}

static bool embed_elsewhere(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)u;
    vti_plan_place *place = &plan->place[phase][0];
    place->shares[1] = place->shares[0];
    place->shares[0] = 0;
    return c->cluster.devices > 1;
}

static bool shard_moved(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    vti_plan_place *place = &plan->place[phase][u];
    unsigned d = 0;
    while (!place->shares[d]) d++;
    unsigned to = (d + 1) % c->cluster.devices;
    place->shares[d]--, place->shares[to]++;
    return to != d && !place->exchange;
}

static bool too_fast(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)u;
    *(phase == VTI_DECODE ? &plan->tpot_s : &plan->ttft_s) *= 0.999;
    return true;
}

static bool too_small(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase, (void)u;
    plan->memory_bytes[0] -= 1000;
    return plan->memory_bytes[0] > 0;
}

static bool lacking(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase, (void)u;
    plan->shortfall_bytes[0] = 1;
    return true;
}

static bool not_feasible(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase, (void)u;
    plan->feasible = !plan->feasible;
    return true;
}

static bool other_qos(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)c, (void)phase, (void)u;
    plan->meets_qos = !plan->meets_qos;
    return true;
}

static bool replica_outside(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)phase;
    plan->replica[u] = (uint8_t)(plan->devices + 1);
    return planner_class(&c->request, u)->kv_bytes > 0;
}

static bool replica_of_nothing(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    (void)phase;
    plan->replica[u] = 1;
    return !(planner_class(&c->request, u)->kv_bytes > 0);
}

static bool replica_with_the_rows(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    unsigned mask = vti_plan_mask(&plan->place[VTI_DECODE][u]);
    (void)phase;
    plan->replica[u] = (uint8_t)(1 + __builtin_ctz(mask));
    return planner_class(&c->request, u)->kv_bytes > 0 && (mask & (mask - 1)) == 0;
}

/* Its memory is in no sum. */
static bool replica_not_counted(const planner_case *c, vti_plan *plan, unsigned phase, unsigned u)
{
    unsigned mask = vti_plan_mask(&plan->place[VTI_DECODE][u]), other = 0;
    (void)phase;
    if (plan->replica[u]) {
        plan->replica[u] = 0;
        return true;
    }
    while (mask >> other & 1) other++;
    plan->replica[u] = (uint8_t)(1 + other);
    return planner_class(&c->request, u)->kv_bytes > 0 && other < plan->devices;
}

static const struct {
    const char *name;
    breaker *breaks;
    const char *says; /* a part of what vti_plan_check says; NULL: one of several things */
} breakers[] = {
    {"fewer units", fewer_units, "other units"},
    {"more devices", more_devices, "number of devices"},
    {"more pruned", more_pruned, "prunes"},
    {"pruned twice", pruned_twice, "pruned"},
    {"pruned outside", pruned_outside, "pruned"},
    {"other precision", other_precision, "precision"},
    {"shard lost", shard_lost, "add up"},
    {"shard twice", shard_twice, "add up"},
    {"shard outside", shard_outside, "lacks"},
    {"home outside", home_outside, "home must be a device"},
    {"stream from nobody", stream_from_nobody, "stream"},
    {"stream from outside", stream_from_outside, "stream"},
    {"unknown wire", unknown_wire, "wire"},
    {"exchange alone", exchange_alone, "exchange"},
    {"exchange unknown", exchange_unknown, "exchange"},
    {"exchange of others", exchange_of_others, "exchange"},
    {"HEAD elsewhere", head_elsewhere, "HEAD"},
    {"EMBED elsewhere", embed_elsewhere, "EMBED"},
    {"replica outside", replica_outside, "replica must be on a device"},
    {"replica of nothing", replica_of_nothing, "without KV rows"},
    {"replica with the rows", replica_with_the_rows, "another device than the rows"},
    {"replica not counted", replica_not_counted, "memory"},
    {"shard moved", shard_moved, NULL},
    {"too fast", too_fast, "times"},
    {"too small", too_small, "memory"},
    {"lacking", lacking, "lacks no memory"},
    {"not feasible", not_feasible, "wrong about"},
    {"other QoS", other_qos, "wrong about"},
};

enum { BREAKERS = sizeof breakers / sizeof *breakers };

static void try_breaker(const planner_case *c, const vti_plan *sound, test_random *random,
                        unsigned which, unsigned *tried)
{
    static vti_plan broken;
    unsigned where;
    broken = *sound;
    unsigned u = 1 + planner_below(random, c->model.units - 2);
    if (!breakers[which].breaks(c, &broken, planner_below(random, VTI_PHASES), u)) return;
    const char *wrong = vti_plan_check(&c->request, &broken, &where);
    if (!wrong) fail_msg("%s: the planner's checker accepts it", breakers[which].name);
    if (breakers[which].says && !strstr(wrong, breakers[which].says))
        fail_msg("%s: %s", breakers[which].name, wrong);
    if (!planner_judge(&c->request, &broken))
        fail_msg("%s: the independent checker accepts it", breakers[which].name);
    tried[which]++;
}

static void every_broken_plan(void **state)
{
    (void)state;
    test_random random = {0xb0b0};
    planner_case c;
    static vti_plan plan;
    unsigned tried[BREAKERS] = {0}, cases = planner_cases(2000);
    for (unsigned i = 0; i < cases; i++) {
        unsigned where;
        planner_random(&c, &random, 1 + planner_below(&random, 4), 1 + planner_below(&random, 3),
                       8, i % 2 * 0.5);
        if (!vti_plan_search(&c.request, VTI_SEARCH_DP, NULL, scratch, &plan)) continue;
        assert_null(vti_plan_check(&c.request, &plan, &where));
        for (unsigned b = 0; b < BREAKERS; b++) try_breaker(&c, &plan, &random, b, tried);
    }
    for (unsigned b = 0; b < BREAKERS; b++)
        if (tried[b] < 5) fail_msg("%s: tried %u times only", breakers[b].name, tried[b]);
}

/* A plan that is sound, for a device that has a byte less than it needs. */
static void a_byte_too_little(void **state)
{
    (void)state;
    test_random random = {0xb17e};
    planner_case c;
    static vti_plan plan;
    unsigned where;
    planner_random(&c, &random, 3, 2, 8, 0);
    assert_true(vti_plan_search(&c.request, VTI_SEARCH_AWARE_TP, NULL, scratch, &plan));
    for (unsigned d = 0; d < 3; d++) {
        double before = c.cluster.device[d].memory_bytes;
        c.cluster.device[d].memory_bytes = plan.memory_bytes[d];
        assert_null(vti_plan_check(&c.request, &plan, &where));
        c.cluster.device[d].memory_bytes--;
        assert_string_equal(vti_plan_check(&c.request, &plan, &where),
                            "a device has too little memory for its shards");
        assert_int_equal(where, d);
        c.cluster.device[d].memory_bytes = before;
    }
}

/* --- requests --------------------------------------------------------------------------------- */

static void expect(const planner_case *c, const char *part, unsigned where)
{
    unsigned at = 999;
    const char *wrong = vti_plan_check_request(&c->request, &at);
    if (!wrong || !strstr(wrong, part)) fail_msg("\"%s\" is not about \"%s\"", wrong, part);
    assert_int_equal(at, where);
}

/* Sets a field, expects the complaint, sets it back. */
#define REFUSES(c, field, value, part, where)                                                      \
    do {                                                                                           \
        planner_case kept = *(c);                                                                  \
        (field) = (value);                                                                         \
        expect(c, part, where);                                                                    \
        *(c) = kept;                                                                               \
    } while (0)

static void every_bad_request(void **state)
{
    (void)state;
    test_random random = {0xbad};
    static planner_case c;
    unsigned where;
    planner_random(&c, &random, 3, 2, 8, 0);
    assert_null(vti_plan_check_request(&c.request, &where));
    REFUSES(&c, c.cluster.devices, 0, "1 to 8 devices", 0);
    REFUSES(&c, c.cluster.devices, 9, "1 to 8 devices", 0);
    REFUSES(&c, c.model.units, 1, "2 to 258 units", 0);
    REFUSES(&c, c.model.units, 259, "2 to 258 units", 0);
    REFUSES(&c, c.model.classes, 17, "16 classes", 0);
    REFUSES(&c, c.request.wire, VTI_WIRES, "wire", 0);
    REFUSES(&c, c.request.wire_lowered[2], VTI_WIRES - c.request.wire, "lowered below", 2);
    REFUSES(&c, c.request.wire_lowered[2], 255, "lowered below", 2);
    REFUSES(&c, c.request.pruned_shards, 256, "pruned", 0);
    REFUSES(&c, c.request.prompt_tokens, 0, "prompt", 0);
    REFUSES(&c, c.request.prompt_tokens, 1.5, "prompt", 0);
    REFUSES(&c, c.request.context_tokens, c.request.prompt_tokens - 1, "context", 0);
    REFUSES(&c, c.request.tpot_s, 0, "QoS", 0);
    REFUSES(&c, c.request.ttft_s, NAN, "QoS", 0);
    REFUSES(&c, c.cluster.device[2].memory_bytes, -1, "memory", 2);
    REFUSES(&c, c.cluster.device[1].memory_bytes, 0.5, "memory", 1);
    REFUSES(&c, c.cluster.device[1].scratch_bytes, INFINITY, "memory", 1);
    REFUSES(&c, c.cluster.device[1].cost[VTI_PLAN_FFN][VTI_PLAN_I8][VTI_DECODE].per_mac, -1e-9,
            "coefficients", 1);
    REFUSES(&c, c.cluster.device[0].cost[VTI_PLAN_ATTN][VTI_PLAN_F16][VTI_PREFILL].fixed, NAN,
            "coefficients", 0);
    REFUSES(&c, c.cluster.link[0][2].bytes_per_s, 0, "bandwidth", 0);
    REFUSES(&c, c.cluster.link[2][1].latency_s, -1, "latency", 2);
    REFUSES(&c, c.cluster.link[1][0].group, 9, "group", 1);
    REFUSES(&c, c.request.precision[3], VTI_PLAN_PRECISIONS, "precision", 3);
    REFUSES(&c, c.model.unit_class[3], c.model.classes, "class", 3);
    REFUSES(&c, c.model.unit_class[3], 0, "first unit", 3);
    REFUSES(&c, c.model.unit_class[0], 1, "first unit", 0);
}

static void every_bad_class(void **state)
{
    (void)state;
    test_random random = {0xbadc};
    static planner_case c;
    planner_random(&c, &random, 2, 1, 8, 0);
    vti_plan_class *attn = &c.model.class_[1];
    REFUSES(&c, attn->kind, VTI_PLAN_HEAD, "first unit", 1);
    REFUSES(&c, attn->shards, 0, "shards", 1);
    REFUSES(&c, attn->shards, 65536, "shards", 1);
    REFUSES(&c, attn->weight_bytes[VTI_PLAN_I4], 0.5, "weights", 1);
    REFUSES(&c, attn->always_bytes[VTI_PLAN_I4], -1, "weights", 1);
    REFUSES(&c, attn->kv_bytes, NAN, "KV", 1);
    REFUSES(&c, attn->shared_bytes, 0.25, "shared", 1);
    REFUSES(&c, attn->window, -1, "window", 1);
    REFUSES(&c, attn->macs, INFINITY, "work", 1);
    REFUSES(&c, attn->kv_macs, -1, "work", 1);
    REFUSES(&c, attn->always_macs, NAN, "work", 1);
    vti_plan_class *ffn = &c.model.class_[2];
    ffn->kind = VTI_PLAN_MOE, ffn->active_shards = ffn->shards;
    REFUSES(&c, ffn->active_shards, 0, "experts", 2);
    REFUSES(&c, ffn->active_shards, ffn->shards + 1, "experts", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_broken_plan),
        cmocka_unit_test(a_byte_too_little),
        cmocka_unit_test(every_bad_request),
        cmocka_unit_test(every_bad_class),
    };
    scratch = malloc(vti_plan_scratch_bytes());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
