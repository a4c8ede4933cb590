/* Payloads between devices, and which headers a worker lets in. */
#include "support.h"

#include <string.h>

#include "../src/little_endian.h"
#include "../src/engagement.h"

/* --- payloads ------------------------------------------------------------------------------------ */

static vti_hparams shape(void)
{
    return (vti_hparams){.arch = VTI_ARCH_LLAMA, .layers = 7, .d = 64, .heads = 4, .kv_heads = 2,
                         .head_dim = 16, .ff = 128, .vocab = 300, .context = 99, .rope_dims = 16,
                         .window = 11, .window_period = 6, .experts = 60, .experts_used = 4,
                         .expert_ff = 32, .expert_norm = 1, .expert_scale = 2.5f, .rms_eps = 1e-5f,
                         .attention_scale = 0.25f,
                         .rope = {.base = 5e5f, .scaling = VTI_ROPE_YARN, .factor = 4,
                                  .original_context = 33, .beta_fast = 32, .beta_slow = 1,
                                  .extrapolation = 0.5f, .magnitude = 1.5f},
                         .local_rope_base = 1e4f};
}

static void assignment(void **state)
{
    (void)state;
    uint8_t data[VTI_WIRE_SMALL_MAX];
    vti_writer w = {data, sizeof data, 0, false};
    vti_assignment a = {.hparams = shape(), .identity = {"shape of it", "weights of it"},
                        .first = 2, .count = 3, .hop = 1, .quantised = true,
                        .next = "[fe80::1]:7001"};
    vti_assignment b;
    assert_true(vti_encode_assignment(&w, &a));
    assert_true(vti_decode_assignment(data, w.bytes, &b));
    assert_memory_equal(&a.hparams, &b.hparams, sizeof a.hparams);
    assert_memory_equal(&a.identity, &b.identity, sizeof a.identity);
    assert_true(b.first == 2 && b.count == 3 && b.hop == 1 && b.quantised);
    assert_string_equal(b.next, a.next);
    for (size_t cut = 0; cut < w.bytes; cut++)
        assert_false(vti_decode_assignment(data, cut, &b));
    assert_false(vti_decode_assignment(data, w.bytes + 1, &b)); /* something behind it */
    data[0] = VTI_ARCH_COUNT;
    assert_false(vti_decode_assignment(data, w.bytes, &b));
    data[0] = VTI_ARCH_LLAMA;
    data[4] = VTI_ROPE_SCALING_COUNT;
    assert_false(vti_decode_assignment(data, w.bytes, &b));
    data[4] = VTI_ROPE_YARN;
    data[w.bytes - 3] = 0; /* a NUL inside the address */
    assert_false(vti_decode_assignment(data, w.bytes, &b));
    /* An address longer than there is room for. */
    w.bytes -= strlen(a.next) + 4;
    vti_write_u32(&w, VTI_WIRE_ADDRESS_MAX + 1);
    for (int i = 0; i <= VTI_WIRE_ADDRESS_MAX; i++) vti_write_bytes(&w, "x", 1);
    assert_false(vti_decode_assignment(data, w.bytes, &b));
}

static void offer(void **state)
{
    (void)state;
    uint8_t data[VTI_WIRE_OFFER_MAX + 1];
    static vti_offer a, b;
    a.memory_bytes = 1ull << 40;
    a.page_bytes = 16384;
    for (int with = 0; with < 2; with++) {
        vti_writer w = {data, VTI_WIRE_OFFER_MAX, 0, false};
        if (with) {
            a.has_profile = true;
            a.profile.threads = 4;
            a.profile.bytes_per_s = 3e10f;
            for (int phase = 0; phase < VTI_PHASES; phase++)
                a.profile.cost[VTI_PLAN_HEAD][VTI_PLAN_I4][phase].per_mac = 1e-9f;
        }
        assert_true(vti_encode_offer(&w, &a));
        assert_true(vti_decode_offer(data, w.bytes, &b));
        assert_memory_equal(&a, &b, sizeof a);
        for (size_t cut = 0; cut < w.bytes; cut++)
            assert_false(vti_decode_offer(data, cut, &b));
        assert_false(vti_decode_offer(data, w.bytes + 1, &b));
        for (unsigned page = 0; page < 3; page++) { /* none, no power of two, too large */
            vti_put_u32(data + 8, page == 0 ? 0 : page == 1 ? 4095 : 4u << 20);
            assert_false(vti_decode_offer(data, w.bytes, &b));
        }
        vti_put_u32(data + 8, 4096);
        data[12] = 2;
        assert_false(vti_decode_offer(data, w.bytes, &b));
    }
}

static void parts_of_a_block(void **state)
{
    (void)state;
    enum { MOST = VTI_WIRE_BLOCK_MAX };
    assert_int_equal(vti_block_part_bytes(0, 0), 0);
    assert_int_equal(vti_block_part_bytes(1, 0), 1);
    assert_int_equal(vti_block_part_bytes(1, 1), 0);
    assert_int_equal(vti_block_part_bytes(MOST, 0), MOST);
    assert_int_equal(vti_block_part_bytes(MOST, 1), 0);
    assert_int_equal(vti_block_part_bytes(MOST + 5, 0), MOST);
    assert_int_equal(vti_block_part_bytes(MOST + 5, 1), 5);
    assert_int_equal(vti_block_part_bytes(MOST + 5, 2), 0);
    assert_int_equal(vti_block_part_bytes(MOST + 5, UINT32_MAX), 0);
    assert_int_equal(vti_block_part_bytes(UINT64_MAX, UINT32_MAX), MOST);
}

static void refusal(void **state)
{
    (void)state;
    uint8_t data[VTI_WIRE_SMALL_MAX];
    vti_writer w = {data, sizeof data, 0, false};
    vt_error out;
    assert_true(vti_encode_refusal(&w, VT_ERR_BUSY, "it\nserves\x7f another"));
    assert_true(vti_decode_refusal(data, w.bytes, &out));
    assert_int_equal(out.status, VT_ERR_BUSY);
    assert_string_equal(out.message, "it?serves? another");
    /* Success and unknown codes are no refusal's status. */
    data[0] = 0;
    assert_true(vti_decode_refusal(data, w.bytes, &out));
    assert_int_equal(out.status, VT_ERR_REMOTE);
    data[0] = 99;
    assert_true(vti_decode_refusal(data, w.bytes, &out));
    assert_int_equal(out.status, VT_ERR_REMOTE);
    assert_false(vti_decode_refusal(data, 3, &out));
}

static void writer_is_bounded(void **state)
{
    (void)state;
    uint8_t data[6];
    vti_writer w = {data, sizeof data, 0, false};
    vti_write_u32(&w, 0x04030201);
    assert_int_equal(data[0], 1);
    assert_int_equal(data[3], 4);
    vti_write_u32(&w, 1);
    assert_true(w.failed);
    assert_int_equal(w.bytes, 4);
}

/* --- admission ----------------------------------------------------------------------------------- */

enum { MAIN = 1, SOURCE = 2, STRANGER = 3 };

static vti_admission admission(vti_phase phase)
{
    vti_admission a = {.engaged = true, .phase = phase, .main = MAIN, .source = SOURCE, .d = 64,
                       .hop = 1, .first = 2, .batch = 8, .context = 100, .epoch = 5,
                       .largest_step_bytes = 8 * 64 * 4 + 8};
    pthread_mutex_init(&a.lock, NULL);
    return a;
}

static bool lets_in(vti_admission *a, vti_net_peer peer, vti_frame_header h)
{
    return vti_admission_check(a, peer, &h) == NULL;
}

static vti_frame_header message(vti_message type, uint32_t bytes)
{
    return (vti_frame_header){.type = (uint8_t)type, .message_bytes = bytes};
}

static void strangers(void **state)
{
    (void)state;
    vti_admission a = admission(VTI_PHASE_SESSION);
    assert_true(lets_in(&a, STRANGER, message(VTI_MSG_CLAIM, VTI_CLUSTER_ID_BYTES)));
    assert_true(lets_in(&a, STRANGER, message(VTI_MSG_LINK, VTI_CLUSTER_ID_BYTES)));
    assert_false(lets_in(&a, STRANGER, message(VTI_MSG_CLAIM, VTI_CLUSTER_ID_BYTES + 1)));
    assert_false(lets_in(&a, STRANGER, message(VTI_MSG_ASSIGN, 100)));
    assert_false(lets_in(&a, STRANGER, message(VTI_MSG_STEP, 264)));
    assert_false(lets_in(&a, STRANGER, message(VTI_MSG_BLOCK, 1000)));
    assert_false(lets_in(&a, STRANGER, message((vti_message)200, 0)));
}

/* What the main device may send runs ahead of what we have handled. */
static void main_device_in_order(void **state)
{
    (void)state;
    vti_admission a = admission(VTI_PHASE_CLAIMED);
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_BLOCK, 1000)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_ASSIGN, 0)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_ASSIGN, VTI_WIRE_SMALL_MAX + 1)));
    assert_true(lets_in(&a, MAIN, message(VTI_MSG_ASSIGN, 100)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_ASSIGN, 100)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_MANIFEST, 680)));
    a.manifest_bytes = 680; /* we answered ASSIGNED */
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_BLOCK, 1000)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_MANIFEST, 679)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_MANIFEST, 681)));
    assert_true(lets_in(&a, MAIN, message(VTI_MSG_MANIFEST, 680)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_MANIFEST, 680)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_LOADED, 8)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_BLOCK, 1000)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_SESSION, 12)));
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_SESSION_END, 0)));
    a.phase = VTI_PHASE_READY; /* we answered READY */
    assert_true(lets_in(&a, MAIN, message(VTI_MSG_SESSION, 12)));
    a.phase = VTI_PHASE_SESSION; /* SESSION_OK */
    assert_false(lets_in(&a, MAIN, message(VTI_MSG_SESSION, 12)));
    assert_true(lets_in(&a, MAIN, message(VTI_MSG_SESSION_END, 0)));
    assert_true(lets_in(&a, MAIN, message(VTI_MSG_SESSION, 12)));
}

static vti_frame_header part(uint32_t index, uint32_t number, uint32_t bytes)
{
    return (vti_frame_header){.type = VTI_MSG_BLOCK, .unit = index, .step = number,
                              .message_bytes = bytes};
}

/* Exactly the parts of exactly the blocks that we asked for, in that order. */
static void blocks(void **state)
{
    (void)state;
    enum { MOST = VTI_WIRE_BLOCK_MAX };
    vti_admission a = admission(VTI_PHASE_LOADING);
    assert_false(lets_in(&a, MAIN, part(7, 0, 10)));
    assert_true(vti_admission_order(&a, 7, 2 * MOST + 5));
    assert_true(vti_admission_order(&a, 3, 10));
    assert_false(lets_in(&a, SOURCE, part(7, 0, MOST)));
    assert_false(lets_in(&a, MAIN, part(3, 0, 10)));
    assert_false(lets_in(&a, MAIN, part(7, 1, MOST)));
    assert_false(lets_in(&a, MAIN, part(7, 0, MOST - 1)));
    assert_false(lets_in(&a, MAIN, part(7, 0, 0)));
    assert_true(lets_in(&a, MAIN, part(7, 0, MOST)));
    assert_false(lets_in(&a, MAIN, part(7, 0, MOST)));
    assert_false(lets_in(&a, MAIN, part(7, 2, 5)));
    assert_true(lets_in(&a, MAIN, part(7, 1, MOST)));
    assert_false(lets_in(&a, MAIN, part(7, 2, 6)));
    assert_true(lets_in(&a, MAIN, part(7, 2, 5)));
    assert_false(lets_in(&a, MAIN, part(7, 3, 0)));
    assert_true(lets_in(&a, MAIN, part(3, 0, 10)));
    assert_false(lets_in(&a, MAIN, part(3, 0, 10)));
    assert_true(vti_admission_order(&a, 3, 10)); /* once more: it was damaged */
    assert_true(lets_in(&a, MAIN, part(3, 0, 10)));
    for (uint32_t i = 0; i < 1000; i++) assert_true(vti_admission_order(&a, i, 20 + i));
    for (uint32_t i = 0; i < 1000; i++) assert_true(lets_in(&a, MAIN, part(i, 0, 20 + i)));
    assert_true(vti_admission_order(&a, 1, 10));
    vti_admission_forget_orders(&a);
    assert_false(lets_in(&a, MAIN, part(1, 0, 10)));
}

static vti_frame_header step(uint32_t number, uint32_t begin, uint32_t count)
{
    return (vti_frame_header){.type = VTI_MSG_STEP, .epoch = 5, .step = number, .unit = 2,
                              .token_begin = begin, .token_count = count,
                              .message_bytes = count * 64 * 4 + 8};
}

static void steps(void **state)
{
    (void)state;
    vti_admission a = admission(VTI_PHASE_SESSION);
    assert_false(lets_in(&a, MAIN, step(0, 0, 8))); /* not our source */
    assert_true(lets_in(&a, SOURCE, step(0, 0, 8)));
    assert_false(lets_in(&a, SOURCE, step(0, 8, 1))); /* again */
    assert_false(lets_in(&a, SOURCE, step(2, 8, 1))); /* one left out */
    assert_false(lets_in(&a, SOURCE, step(1, 9, 1))); /* a gap */
    assert_false(lets_in(&a, SOURCE, step(1, 8, 0)));
    assert_false(lets_in(&a, SOURCE, step(1, 8, 9))); /* more than a batch */
    assert_false(lets_in(&a, SOURCE, step(1, UINT32_MAX, 1)));
    vti_frame_header h = step(1, 8, 1);
    h.message_bytes++;
    assert_false(lets_in(&a, SOURCE, h));
    h = step(1, 8, 1);
    h.unit = 3;
    assert_false(lets_in(&a, SOURCE, h));
    h = step(1, 8, 1);
    h.epoch = 6;
    assert_false(lets_in(&a, SOURCE, h));
    assert_true(lets_in(&a, SOURCE, step(1, 8, 1)));
    assert_true(lets_in(&a, SOURCE, step(2, 4, 3))); /* rewound */
    assert_false(lets_in(&a, SOURCE, step(3, 9, 1)));
    a.end = 96;
    assert_true(lets_in(&a, SOURCE, step(3, 96, 4)));
    assert_false(lets_in(&a, SOURCE, step(4, 100, 1))); /* past the context */
}

/* A step may not come before its session was opened, nor a session's end be forgotten. */
static void steps_and_sessions(void **state)
{
    (void)state;
    vti_admission a = admission(VTI_PHASE_READY);
    assert_true(lets_in(&a, MAIN, message(VTI_MSG_SESSION, 12)));
    vti_frame_header early = step(0, 0, 1);
    early.epoch = 6;
    assert_false(lets_in(&a, SOURCE, early));
    early.token_count = 1000000;
    early.message_bytes = 0;
    assert_false(lets_in(&a, SOURCE, early));
    assert_true(lets_in(&a, MAIN, message(VTI_MSG_SESSION_END, 0)));
    assert_int_equal(a.ends, 1);
}

/* Steps of a session that is over are let in to be dropped, up to the largest real size. */
static void late_steps(void **state)
{
    (void)state;
    vti_admission a = admission(VTI_PHASE_SESSION);
    vti_frame_header h = step(7, 50, 8);
    h.epoch = 4;
    assert_true(lets_in(&a, SOURCE, h));
    h.message_bytes++;
    assert_false(lets_in(&a, SOURCE, h));
    assert_int_equal(a.next_step, 0);
    a.phase = VTI_PHASE_READY;
    assert_true(lets_in(&a, SOURCE, step(0, 0, 8)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assignment), cmocka_unit_test(offer),
        cmocka_unit_test(parts_of_a_block), cmocka_unit_test(refusal),
        cmocka_unit_test(writer_is_bounded), cmocka_unit_test(strangers),
        cmocka_unit_test(main_device_in_order), cmocka_unit_test(blocks), cmocka_unit_test(steps),
        cmocka_unit_test(late_steps), cmocka_unit_test(steps_and_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
