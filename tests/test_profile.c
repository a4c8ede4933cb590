/* Profiles as data: text, wire, and what the planner gets of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/profile.h"
#include "support.h"

/* Every number another one. */
static vti_profile sample(void)
{
    test_random random = {0x90f1};
    vti_profile p = {.name = "A processor", .version = "0.1.0", .features = 0x300, .threads = 4,
                     .cache_bytes = 8u << 20, .bytes_per_s = 2.5e10f};
    for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
        for (unsigned q = 0; q < VTI_PLAN_PRECISIONS; q++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
                float terms[VTI_PROFILE_TERMS + 1];
                for (unsigned t = 0; t < VTI_PROFILE_TERMS; t++)
                    terms[t] = expf(test_random_float(&random, -30, -5));
                terms[VTI_PROFILE_TERMS] = test_random_float(&random, 0.5f, 1);
                p.cost[k][q][phase] = vti_profile_cost_of(terms);
            }
    return p;
}

static void json_round_trip(void **state)
{
    (void)state;
    vti_profile p = sample(), back;
    vt_error err;
    char *text = vti_profile_write_json(&p);
    assert_non_null(text);
    if (vti_profile_read_json(text, strlen(text), &back, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_memory_equal(&p, &back, sizeof p);
    free(text);
}

/* Replaces the first `from`; the reader says `says` and leaves *out alone. */
static void refuses(const char *from, const char *to, const char *says)
{
    vti_profile p = sample(), out = {.threads = 77};
    vt_error err;
    char *text = vti_profile_write_json(&p), *at = strstr(text, from), damaged[32768];
    assert_non_null(at);
    snprintf(damaged, sizeof damaged, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    vt_status status = vti_profile_read_json(damaged, strlen(damaged), &out, &err);
    if (status != VT_ERR_FORMAT || !strstr(err.message, says))
        fail_msg("\"%s\" as \"%s\": %d, %s", from, to, status, err.message);
    assert_int_equal(out.threads, 77);
    free(text);
}

static void json_damage(void **state)
{
    (void)state;
    refuses("{", "[", "no JSON: line 1");
    refuses("voltron-profile", "voltron-plan", "\"format\" must be \"voltron-profile\"");
    refuses("\"version\": 1", "\"version\": 2", "\"version\" must be 1");
    refuses("\"name\"", "\"nome\"", "no field \"nome\"");
    refuses("\"A processor\"", "7", "\"name\" must be a text");
    refuses("A processor", "A processor whose name goes on beyond forty-seven bytes", "47 bytes");
    refuses("\"neon\"", "\"nein\"", "\"nein\" in \"features\"");
    refuses("\"threads\": 4", "\"threads\": 0", "whole number from 1 to 1024");
    refuses("\"threads\": 4", "\"threads\": 4.5", "whole number from 1 to 1024");
    refuses("\"cache_bytes\": 8388608", "\"cache_bytes\": -1", "\"cache_bytes\" must be");
    refuses("\"MOE\"", "\"MUH\"", "ATTN, FFN, MOE or HEAD");
    refuses("\"MOE\"", "\"EMBED\"", "ATTN, FFN, MOE or HEAD");
    refuses("\"MOE\"", "\"ATTN\"", "ATTN at F16 in prefill is there twice");
    refuses("\"decode\"", "\"encode\"", "prefill or decode");
    refuses("\"per_mac\": ", "\"per_mac\": -", "\"per_mac\" must be a number that is not negative");
    refuses("\"per_mac\": ", "\"per_mac\": 1e40, \"fixe\": ", "no field \"fixe\"");
    refuses("\"fixed\": ", "\"fixed\": \"fast\", \"per_mac\": 1, \"x\": ", "is no JSON");
    refuses("\"accuracy\": 0.", "\"accuracy\": 3.", "at most 1");
    refuses("]}\n", ", 3]}\n", "a list of 24");
}

/* Whatever bytes come, the reader ends with a profile or a message. */
static void json_random_damage(void **state)
{
    (void)state;
    test_random random = {0xdead};
    vti_profile p = sample(), out;
    vt_error err;
    char *text = vti_profile_write_json(&p);
    size_t bytes = strlen(text);
    for (unsigned i = 0; i < 300; i++) {
        size_t at = test_random_u64(&random) % bytes;
        char was = text[at];
        text[at] = (char)test_random_u64(&random);
        if (vti_profile_read_json(text, bytes, &out, &err) == VT_OK)
            assert_null(vti_profile_check(&out));
        text[at] = was;
        size_t cut = test_random_u64(&random) % (bytes - 4);
        assert_int_equal(vti_profile_read_json(text, cut, &out, &err), VT_ERR_FORMAT);
    }
    free(text);
}

static void wire_round_trip(void **state)
{
    (void)state;
    vti_profile p = sample(), back;
    uint8_t bytes[VTI_PROFILE_WIRE_BYTES];
    vti_profile_encode(&p, bytes);
    assert_true(vti_profile_decode(bytes, &back));
    assert_memory_equal(&p, &back, sizeof p);
    assert_int_equal(bytes[VTI_PROFILE_NAME_MAX + VTI_PROFILE_VERSION_MAX + 1], 3); /* features */
}

static void put_float(uint8_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(bits >> 8 * i);
}

static void wire_damage(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, -1e-9f};
    vti_profile p = sample(), out;
    uint8_t bytes[VTI_PROFILE_WIRE_BYTES];
    for (size_t at = VTI_PROFILE_WIRE_BYTES - 4 * (1 + 24 * 10); at < sizeof bytes; at += 4)
        for (unsigned i = 0; i < 4; i++) {
            vti_profile_encode(&p, bytes);
            put_float(bytes + at, bad[i]);
            assert_false(vti_profile_decode(bytes, &out));
        }
    vti_profile_encode(&p, bytes);
    memset(bytes, 'x', VTI_PROFILE_NAME_MAX);
    assert_false(vti_profile_decode(bytes, &out));
    bytes[VTI_PROFILE_NAME_MAX - 1] = 0, bytes[0] = 27; /* escape */
    assert_true(vti_profile_decode(bytes, &out));
    assert_int_equal(out.name[0], '?');
    memset(bytes + VTI_PROFILE_NAME_MAX + VTI_PROFILE_VERSION_MAX + 4, 0, 4);
    assert_false(vti_profile_decode(bytes, &out)); /* no thread */
}

/* --- files ------------------------------------------------------------------------------------ */

static void files(void **state)
{
    (void)state;
    char folder[] = "/tmp/voltron-profile-XXXXXX", path[64], other[64], text[16];
    vti_profile p = sample();
    vt_profile *profile, *back;
    vt_error err;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.json", folder);
    snprintf(other, sizeof other, "%s/b", folder);
    assert_int_equal(vti_profile_new(&p, &profile, &err), VT_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(vt_profile_save(profile, path, &err), VT_OK);
    assert_int_equal(vt_profile_load(path, &back, &err), VT_OK);
    assert_memory_equal(&back->facts, &p, sizeof p);
    size_t bytes = vt_profile_text(back, text, sizeof text);
    assert_true(bytes > 1000);
    assert_string_equal(text, "{\"format\": \"vol");
    vt_profile_close(back);

    FILE *file = fopen(other, "w");
    assert_true(fputs("a letter to a friend", file) >= 0 && fclose(file) == 0);
    assert_int_equal(vt_profile_save(profile, other, &err), VT_ERR_ARGUMENT);
    assert_int_equal(vt_profile_load(other, &back, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, other));
    assert_null(back);
    assert_int_equal(vt_profile_load(folder, &back, &err), VT_ERR_IO);
    assert_int_equal(vt_profile_load("/nowhere/at/all", &back, &err), VT_ERR_IO);
    vt_profile_close(profile);
    assert_int_equal(remove(path) | remove(other) | remove(folder), 0);
}

/* A model of so many bytes at F16, half that at I8 and I4. */
static vti_plan_model model_of(double bytes)
{
    vti_plan_model model = {.classes = 3, .units = 4, .unit_class = {0, 1, 1, 2}};
    model.class_[1] = (vti_plan_class){.kind = VTI_PLAN_FFN, .shards = 4};
    for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
        model.class_[1].weight_bytes[p] = bytes / (p ? 16 : 8);
    model.class_[2] = (vti_plan_class){.kind = VTI_PLAN_HEAD, .shards = 1};
    return model;
}

static void small_models_stay_in_the_cache(void **state)
{
    (void)state;
    vti_profile p = sample();
    double cache = (double)p.cache_bytes;
    vti_plan_device small, middle, large;
    vti_plan_model model = model_of(cache / 4);
    vti_profile_fill(&p, &model, &small);
    model = model_of(cache * 0.875);
    vti_profile_fill(&p, &model, &middle);
    model = model_of(cache * 2);
    vti_profile_fill(&p, &model, &large);
    const vti_profile_cost *c = &p.cost[VTI_PLAN_FFN][VTI_PLAN_F16][VTI_DECODE];
    assert_true(small.cost[VTI_PLAN_FFN][VTI_PLAN_F16][VTI_DECODE].per_weight_byte ==
                c->per_cached_byte);
    assert_true(large.cost[VTI_PLAN_FFN][VTI_PLAN_F16][VTI_DECODE].per_weight_byte ==
                c->per_weight_byte);
    double half = middle.cost[VTI_PLAN_FFN][VTI_PLAN_F16][VTI_DECODE].per_weight_byte;
    assert_true(fabs(half / (c->per_cached_byte / 2.0 + c->per_weight_byte / 2.0) - 1) < 1e-9);
    assert_true(large.cost[VTI_PLAN_FFN][VTI_PLAN_F16][VTI_DECODE].fixed == c->fixed);
    assert_true(large.cost[VTI_PLAN_FFN][VTI_PLAN_F16][VTI_DECODE].per_value == c->per_value);
    assert_true(large.cost[VTI_PLAN_EMBED][VTI_PLAN_F16][VTI_DECODE].fixed == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_round_trip),    cmocka_unit_test(json_damage),
        cmocka_unit_test(json_random_damage), cmocka_unit_test(wire_round_trip),
        cmocka_unit_test(wire_damage),        cmocka_unit_test(small_models_stay_in_the_cache),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
