#include <stdio.h>
#include <string.h>

#include "checkkern.h"

static const char *weight_names[] = {
    [VTI_F32] = "f32",   [VTI_F16] = "f16",   [VTI_BF16] = "bf16", [VTI_Q8_0] = "q8_0",
    [VTI_Q4_0] = "q4_0", [VTI_Q5_0] = "q5_0",
    [VTI_Q4_K] = "q4_k", [VTI_Q5_K] = "q5_k", [VTI_Q6_K] = "q6_k",
};
static const char *act_names[] = {
    [VTI_ACT_F32] = "f32", [VTI_ACT_Q8] = "q8", [VTI_ACT_Q8K] = "q8k", [VTI_ACT_F16] = "f16"};
static const char *kv_names[] = {[VTI_KV_F32] = "f32", [VTI_KV_F16] = "f16", [VTI_KV_Q8] = "q8"};

_Static_assert(sizeof weight_names / sizeof *weight_names == VTI_WEIGHT_TYPE_COUNT, "a new type");
_Static_assert(sizeof act_names / sizeof *act_names == VTI_ACT_TYPE_COUNT, "a new form");
_Static_assert(sizeof kv_names / sizeof *kv_names == VTI_KV_FORM_COUNT, "a new form");

typedef struct list {
    ck_entry *entries;
    size_t count;
} list;

/* Pointers to different functions are kept as one type, only to be compared. */
static void put(list *l, const char *name, const char *variant, ck_check_fn *check, unsigned index,
                void (*function)(void))
{
    ck_entry *e = &l->entries[l->count++];
    *e = (ck_entry){.check = check, .index = index, .function = function};
    snprintf(e->name, sizeof e->name, "%s%s%s", name, *variant ? "_" : "", variant);
}

#define PUT(name, variant, check, index, pointer)                                                  \
    put(&l, name, variant, check, index, (void (*)(void))(pointer))

size_t ck_entries(const vti_kernels *k, ck_entry *entries)
{
    list l = {entries, 0};
    for (unsigned i = 0; i < VTI_WEIGHT_TYPE_COUNT; i++)
        PUT("pack", weight_names[i], ck_check_pack, i, k->matmul[i].pack);
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++)
        PUT("act", act_names[i], ck_check_act, i, k->act[i].pack);
    for (unsigned i = 0; i < VTI_WEIGHT_TYPE_COUNT; i++)
        PUT("matmul", weight_names[i], ck_check_matmul, i, k->matmul[i].matmul);
    PUT("rms_norm", "", ck_check_rms_norm, 0, k->rms_norm);
    PUT("rope_interleaved", "", ck_check_rope, 0, k->rope_interleaved);
    PUT("rope_half", "", ck_check_rope, 1, k->rope_half);
    PUT("silu_gate", "", ck_check_gate, 0, k->silu_gate);
    PUT("gelu_gate", "", ck_check_gate, 1, k->gelu_gate);
    PUT("add", "", ck_check_add, 0, k->add);
    PUT("add_scaled", "", ck_check_add_scaled, 0, k->add_scaled);
    PUT("softmax", "", ck_check_softmax, 0, k->softmax);
    PUT("f16_from_f32", "", ck_check_f16_from_f32, 0, k->f16_from_f32);
    PUT("f32_from_f16", "", ck_check_f32_from_f16, 0, k->f32_from_f16);
    PUT("argmax", "", ck_check_argmax, 0, k->argmax);
    for (unsigned i = 0; i < VTI_KV_FORM_COUNT; i++) {
        PUT("kv_store", kv_names[i], ck_check_kv_store, i, k->kv[i].store);
        PUT("attention", kv_names[i], ck_check_attention, i, k->kv[i].attention);
        /* The parts are that function's work too. */
        PUT("attention_parts", kv_names[i], ck_check_attention_merge, i, k->kv[i].attention);
    }
    PUT("attention_merge", "", ck_check_attention_merge, VTI_KV_F32, k->attention_merge);
    return l.count;
}
