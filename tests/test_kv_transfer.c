/* KV caches in pieces: every row exactly once and in order; what of them devices let in. */
#include "support.h"

#include <string.h>

#include "../src/engagement.h"

static vti_hparams hparams(uint32_t window)
{
    return (vti_hparams){.layers = 7, .kv_heads = 3, .head_dim = 8, .window = window,
                         .window_period = 3};
}

/* Walks over the pieces and compares with every row by itself. */
static void check_walk(const vti_kv_shape *s)
{
    vti_kv_chunk chunk = {0};
    uint64_t chunks = 0, rows = 0;
    uint32_t at = 0; /* of the piece's rows */
    size_t most = s->row_bytes < VTI_KV_CHUNK_MAX ? VTI_KV_CHUNK_MAX : s->row_bytes;
    for (uint32_t layer = s->first; layer < s->first + s->layers; layer++) {
        for (uint32_t head = 0; head < 2 * s->hparams->kv_heads; head++) {
            uint32_t from = vti_kv_first(s->hparams, layer, s->end);
            for (uint32_t position = from; position < s->end; position++, at++, rows++) {
                if (at == chunk.rows) {
                    assert_true(vti_kv_next_chunk(s, &chunk));
                    assert_true(chunk.rows > 0 && chunk.rows * s->row_bytes <= most);
                    chunks++;
                    at = 0;
                }
                assert_int_equal(chunk.layer, layer);
                assert_int_equal(chunk.half * s->hparams->kv_heads + chunk.kv_head, head);
                assert_int_equal(chunk.position + at, position);
            }
        }
    }
    assert_int_equal(at, chunk.rows);
    assert_false(vti_kv_next_chunk(s, &chunk));
    assert_int_equal(vti_kv_chunk_count(s), chunks);
    assert_int_equal(vti_kv_row_bytes(s), rows * s->row_bytes);
}

static void every_row_once(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 2, 10, 200};
    static const size_t row_bytes[] = {16, VTI_KV_CHUNK_MAX / 20, VTI_KV_CHUNK_MAX / 2 + 1,
                                       VTI_KV_CHUNK_MAX * 2};
    for (int w = 0; w < 5; w++) {
        vti_hparams p = hparams(windows[w]);
        for (int r = 0; r < 4; r++) {
            check_walk(&(vti_kv_shape){&p, 0, 7, 0, row_bytes[r]});
            check_walk(&(vti_kv_shape){&p, 0, 7, 1, row_bytes[r]});
            check_walk(&(vti_kv_shape){&p, 0, 7, 57, row_bytes[r]});
            check_walk(&(vti_kv_shape){&p, 4, 2, 60, row_bytes[r]});
            check_walk(&(vti_kv_shape){&p, 3, 0, 57, row_bytes[r]});
        }
    }
}

/* --- messages --------------------------------------------------------------------------------- */

static void message_is_its_piece(void **state)
{
    (void)state;
    vti_hparams p = hparams(0);
    vti_kv_shape shape = {&p, 2, 3, 50, 16};
    vti_kv_chunk chunk = {.layer = 3, .half = 1, .kv_head = 2, .position = 7, .rows = 4}, other;
    vti_frame_header h = {.type = VTI_MSG_KV, .message_bytes = VTI_WIRE_SLOT_BYTES + 64};
    uint8_t payload[VTI_WIRE_SLOT_BYTES + 64] = {0};
    vti_kv_message(&p, &chunk, &h, payload);
    assert_true(vti_kv_message_is(&shape, &chunk, &h, payload));
    payload[0]++;
    assert_false(vti_kv_message_is(&shape, &chunk, &h, payload));
    payload[0]--;
    uint32_t *const fields[] = {&other.layer, &other.half, &other.kv_head, &other.position,
                                &other.rows};
    for (int i = 0; i < 5; i++) {
        other = chunk;
        ++*fields[i];
        assert_false(vti_kv_message_is(&shape, &other, &h, payload));
    }
    h.message_bytes--;
    assert_false(vti_kv_message_is(&shape, &chunk, &h, payload));
}

/* --- admission -------------------------------------------------------------------------------- */

enum { MAIN = 1, SOURCE = 2, ROW = 16 };

static vti_admission admission(void)
{
    vti_admission a = {.engaged = true, .phase = VTI_PHASE_SESSION, .main = MAIN,
                       .source = SOURCE, .d = 64, .first = 2, .layers = 2, .batch = 8,
                       .context = 100, .epoch = 5, .hparams = hparams(10), .row_bytes = ROW};
    pthread_mutex_init(&a.lock, NULL);
    return a;
}

static bool lets_in(vti_admission *a, vti_net_peer peer, vti_frame_header h)
{
    return vti_admission_check(a, peer, &h) == NULL;
}

static vti_frame_header control(vti_message type, uint32_t layer, uint32_t end)
{
    return (vti_frame_header){.type = (uint8_t)type, .epoch = 5, .unit = layer, .token_count = end};
}

static vti_frame_header rows(uint32_t count)
{
    return (vti_frame_header){.type = VTI_MSG_KV, .epoch = 5, .token_count = count,
                              .message_bytes = VTI_WIRE_SLOT_BYTES + count * ROW};
}

static void cache_goes_out(void **state)
{
    (void)state;
    vti_admission a = admission();
    a.end = 40;
    assert_true(lets_in(&a, MAIN, control(VTI_MSG_KV_GET, 2, 40)));
    assert_true(lets_in(&a, MAIN, control(VTI_MSG_KV_GET, 3, 1)));
    assert_false(lets_in(&a, SOURCE, control(VTI_MSG_KV_GET, 2, 40)));
    assert_false(lets_in(&a, MAIN, control(VTI_MSG_KV_GET, 1, 40)));
    assert_false(lets_in(&a, MAIN, control(VTI_MSG_KV_GET, 4, 40)));
    assert_false(lets_in(&a, MAIN, control(VTI_MSG_KV_GET, UINT32_MAX, 40)));
    assert_false(lets_in(&a, MAIN, control(VTI_MSG_KV_GET, 2, 41)));
    vti_frame_header h = control(VTI_MSG_KV_GET, 2, 40);
    h.message_bytes = 1;
    assert_false(lets_in(&a, MAIN, h));
    h = control(VTI_MSG_KV_GET, 2, 40);
    h.epoch = 4;
    assert_false(lets_in(&a, MAIN, h));
    a.phase = VTI_PHASE_READY;
    assert_false(lets_in(&a, MAIN, control(VTI_MSG_KV_GET, 2, 40)));
}

static void cache_comes_in(void **state)
{
    (void)state;
    vti_admission a = admission();
    assert_false(lets_in(&a, MAIN, rows(1))); /* not announced */
    assert_false(lets_in(&a, MAIN, control(VTI_MSG_KV_PUT, 0, 101)));
    assert_true(lets_in(&a, MAIN, control(VTI_MSG_KV_PUT, 0, 30)));
    assert_false(lets_in(&a, MAIN, control(VTI_MSG_KV_PUT, 0, 30)));
    assert_false(lets_in(&a, SOURCE, rows(1)));
    assert_false(lets_in(&a, MAIN, rows(0)));
    vti_frame_header h = rows(5);
    h.message_bytes--;
    assert_false(lets_in(&a, MAIN, h));
    h = rows(1);
    h.token_count = UINT32_MAX;
    assert_false(lets_in(&a, MAIN, h));
    /* Layer 2 is global, 30 rows, layer 3 local, 9 rows; 6 times each. */
    for (int i = 0; i < 6; i++) assert_true(lets_in(&a, MAIN, rows(30)));
    for (int i = 0; i < 6; i++) assert_true(lets_in(&a, MAIN, rows(9)));
    assert_false(lets_in(&a, MAIN, rows(1)));
    assert_int_equal(a.end, 30);

    a = admission();
    a.next_step = 1; /* the session has begun */
    assert_false(lets_in(&a, MAIN, control(VTI_MSG_KV_PUT, 0, 30)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_once), cmocka_unit_test(message_is_its_piece),
        cmocka_unit_test(cache_goes_out), cmocka_unit_test(cache_comes_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
