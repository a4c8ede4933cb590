/* Provisioning: a main device that sends wrong weights, workers that ask for nonsense. */
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/little_endian.h"
#include "../src/model.h"
#include "../src/shard_intake.h"
#include "../src/shard_stock.h"
#include "../src/wire.h"
#include "cluster_support.h"

static const char default_model[] = "src/assets/stories-4m-f16.gguf";
enum { PATIENCE_MS = 20000 };

static vt_model *open_model(void)
{
    vt_model *model;
    vt_model_params params = vt_model_params_default();
    params.threads = 1;
    vt_error err;
    if (vt_model_open(default_model, &params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

/* --- a main device of our own ------------------------------------------------------------------ */

typedef struct main_device {
    vt_model *model;
    vti_net *net;
    vti_net_peer worker;
    vti_shard_stock *stock;
    vti_manifest manifest;
} main_device;

static void send_to(vti_net *net, vti_net_peer peer, vti_frame_header header, const void *data,
                    size_t bytes)
{
    vti_net_part part = {data, bytes};
    vti_net_drain(net, peer, 0, vti_net_after_ms(PATIENCE_MS));
    vti_net_send(net, peer, &header, &part, bytes ? 1 : 0);
}

static void send_type(vti_net *net, vti_net_peer peer, vti_message type, const void *data,
                      size_t bytes)
{
    send_to(net, peer, (vti_frame_header){.type = (uint8_t)type}, data, bytes);
}

/* The next message, which has to be of this type. */
static vti_net_event expect(main_device *m, int type)
{
    vti_net_event event;
    for (;;) {
        if (vti_net_wait(m->net, vti_net_after_ms(PATIENCE_MS), &event) != VTI_NET_OK)
            fail_msg("no message of type %d", type);
        if (event.type == VTI_NET_PEER_DOWN) fail_msg("the worker left: %s", event.reason);
        if (event.type == VTI_NET_MESSAGE && event.header.type != VTI_MSG_LOADED) break;
        vti_net_event_clear(&event);
    }
    if (event.header.type != type) fail_msg("type %d instead of %d", event.header.type, type);
    return event;
}

static void take(main_device *m, int type)
{
    vti_net_event event = expect(m, type);
    vti_net_event_clear(&event);
}

/* Up to the point where the manifest is to be sent. */
static void main_open(main_device *m, const char *address)
{
    static const uint8_t id[VTI_CLUSTER_ID_BYTES] = "a cluster of one";
    vti_net_params params = vti_net_params_default();
    m->model = open_model();
    assert_int_equal(vti_net_open(&params, &m->net, NULL), VTI_NET_OK);
    assert_int_equal(vti_net_connect(m->net, address, 2000, &m->worker, NULL), VTI_NET_OK);
    vti_net_event event;
    assert_int_equal(vti_net_wait(m->net, vti_net_after_ms(PATIENCE_MS), &event), VTI_NET_OK);
    assert_int_equal(event.type, VTI_NET_PEER_UP);
    send_type(m->net, m->worker, VTI_MSG_CLAIM, id, sizeof id);
    take(m, VTI_MSG_OFFER);
    vti_assignment a = {.hparams = m->model->hparams, .first = 2, .count = 2,
                        .quantised = m->model->geometry.quantised};
    uint8_t payload[VTI_WIRE_SMALL_MAX];
    vti_writer w = {payload, sizeof payload, 0, false};
    assert_true(vti_encode_assignment(&w, &a));
    send_type(m->net, m->worker, VTI_MSG_ASSIGN, payload, w.bytes);
    take(m, VTI_MSG_ASSIGNED);
    vti_shard_stock_params stock = {.source = m->model->shards};
    vti_manifest *list = &m->manifest;
    assert_int_equal(vti_manifest_new(&m->model->geometry, &m->model->kernels, 2, 2, list, NULL),
                     VT_OK);
    assert_int_equal(vti_shard_stock_open(&stock, &m->stock, NULL), VT_OK);
    assert_int_equal(vti_shard_stock_choose(m->stock, &m->model->composition, list, NULL), VT_OK);
    assert_int_equal(vti_shard_stock_complete(m->stock, &list, 1, NULL), VT_OK);
}

static void main_close(main_device *m)
{
    vti_net_close(m->net);
    vti_manifest_free(&m->manifest);
    vti_shard_stock_close(m->stock);
    vt_model_close(m->model);
}

static void send_manifest(main_device *m)
{
    size_t bytes = (size_t)m->manifest.count * VTI_MANIFEST_ENTRY_BYTES;
    uint8_t *payload = malloc(bytes);
    vti_manifest_encode(&m->manifest, payload);
    send_type(m->net, m->worker, VTI_MSG_MANIFEST, payload, bytes);
    free(payload);
}

/* `damage`: the byte that is changed, counted from the end; 0: none. */
static void send_block(main_device *m, uint32_t index, size_t damage)
{
    vti_cached_block block = {0};
    assert_int_equal(vti_shard_stock_get(m->stock, &m->manifest, index, &block, NULL), VT_OK);
    uint8_t *data = block.data;
    if (damage) data[block.stored_bytes - damage] ^= 0x10;
    for (uint32_t part = 0, bytes; (bytes = vti_block_part_bytes(block.stored_bytes, part)); part++)
        send_to(m->net, m->worker,
                (vti_frame_header){.type = VTI_MSG_BLOCK, .unit = index, .step = part},
                data + (size_t)part * VTI_WIRE_BLOCK_MAX, bytes);
    vti_cached_block_free(&block);
}

static void expect_refusal(main_device *m, vt_status status, const char *text, const char *more)
{
    vti_net_event event = expect(m, VTI_MSG_REFUSE);
    vt_error err;
    assert_true(vti_decode_refusal(event.payload, event.header.message_bytes, &err));
    if (!strstr(err.message, text) || !strstr(err.message, more)) fail_msg("%s", err.message);
    assert_int_equal(err.status, status);
    vti_net_event_clear(&event);
}

/* A right main device is served by the same worker afterwards. */
static void expect_usable(const test_worker *worker)
{
    vt_error err;
    vt_cluster *cluster;
    vt_model *model = open_model();
    vt_status status = test_cluster_open(model, worker, 1, NULL, 0, &cluster, &err);
    for (int i = 0; i < 100 && status == VT_ERR_BUSY; i++) {
        usleep(50000);
        status = test_cluster_open(model, worker, 1, NULL, 0, &cluster, &err);
    }
    if (status != VT_OK) fail_msg("%s", err.message);
    vt_cluster_close(cluster);
    vt_model_close(model);
}

/* A block that is damaged once is asked for again, twice is an error that names it. */
static void damaged_blocks(void **state)
{
    (void)state;
    char name[VTI_SHARD_TEXT];
    test_worker worker = test_worker_start(0, NULL);
    main_device m;
    main_open(&m, worker.address);
    send_manifest(&m);
    vti_net_event wants = expect(&m, VTI_MSG_WANT);
    assert_int_equal(wants.header.message_bytes, m.manifest.count * VTI_WIRE_WANT_BYTES);
    vti_net_event_clear(&wants);
    for (uint32_t i = 0; i < 4; i++) send_block(&m, i, i == 3 ? 20 : 0);
    wants = expect(&m, VTI_MSG_WANT);
    assert_int_equal(wants.header.message_bytes, VTI_WIRE_WANT_BYTES);
    assert_int_equal(vti_load_u32(wants.payload), 3);
    vti_net_event_clear(&wants);
    for (uint32_t i = 4; i < m.manifest.count; i++) send_block(&m, i, 0);
    send_block(&m, 3, 20);
    vti_manifest_name(&m.manifest, 3, name);
    expect_refusal(&m, VT_ERR_FORMAT, name, "damaged");
    main_close(&m);
    expect_usable(&worker);
    test_worker_end(&worker, SIGTERM);
}

/* The block is a good one, but not the one that was announced. */
static void wrong_hash(void **state)
{
    (void)state;
    char name[VTI_SHARD_TEXT];
    test_worker worker = test_worker_start(0, NULL);
    main_device m;
    main_open(&m, worker.address);
    vti_content_hash right = m.manifest.entries[1].hash;
    m.manifest.entries[1].hash.bytes[31] ^= 1;
    send_manifest(&m);
    take(&m, VTI_MSG_WANT);
    m.manifest.entries[1].hash = right;
    for (uint32_t i = 0; i < m.manifest.count; i++) send_block(&m, i, 0);
    take(&m, VTI_MSG_WANT);
    send_block(&m, 1, 0);
    vti_manifest_name(&m.manifest, 1, name);
    expect_refusal(&m, VT_ERR_FORMAT, name, "hash");
    main_close(&m);
    expect_usable(&worker);
    test_worker_end(&worker, SIGTERM);
}

/* Blocks that were not asked for, or in another order, end the connection before they are taken. */
static void blocks_out_of_order(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        test_worker worker = test_worker_start(0, NULL);
        main_device m;
        main_open(&m, worker.address);
        if (way) send_manifest(&m);
        if (way) take(&m, VTI_MSG_WANT);
        if (way < 2) send_block(&m, 1, 0);
        if (way == 2) {
            send_block(&m, 0, 0);
            send_block(&m, 0, 0);
        }
        vti_net_event event;
        do {
            uint64_t deadline = vti_net_after_ms(PATIENCE_MS);
            assert_int_equal(vti_net_wait(m.net, deadline, &event), VTI_NET_OK);
            vti_net_event_clear(&event);
        } while (event.type != VTI_NET_PEER_DOWN);
        if (!strstr(event.reason, "weights")) fail_msg("%s", event.reason);
        main_close(&m);
        expect_usable(&worker);
        test_worker_end(&worker, SIGTERM);
    }
}

/* --- workers of our own ------------------------------------------------------------------------ */

typedef enum trick {
    WANT_NOTHING, WANT_HALF_AN_ENTRY, WANT_PAST_THE_END, WANT_TOO_OFTEN, READY_AT_ONCE,
    LOADED_TOO_MUCH, LOADED_LESS_THAN_BEFORE, ASSIGNED_TWICE, ASSIGNED_NONSENSE,
    ASSIGNED_AND_READY, WANT_ONE_THRICE, TRICKS
} trick;

static void put_number(uint8_t *to, uint64_t value) { vti_put_u64(to, value); }

/* Answers to a manifest of `count` entries. */
static void play(vti_net *net, vti_net_peer peer, trick t, uint32_t count)
{
    uint8_t data[4096] = {0};
    switch (t) {
    case WANT_NOTHING: send_type(net, peer, VTI_MSG_WANT, NULL, 0); break;
    case WANT_HALF_AN_ENTRY: send_type(net, peer, VTI_MSG_WANT, data, 6); break;
    case WANT_PAST_THE_END:
        vti_put_u32(data, count);
        send_type(net, peer, VTI_MSG_WANT, data, 4);
        break;
    case WANT_TOO_OFTEN:
        for (uint32_t i = 0; i < 2 * count + 1; i++) send_type(net, peer, VTI_MSG_WANT, data, 4);
        break;
    case WANT_ONE_THRICE:
        for (uint32_t i = 0; i < 3; i++) send_type(net, peer, VTI_MSG_WANT, data, 4);
        break;
    case READY_AT_ONCE: send_type(net, peer, VTI_MSG_READY, data, 8); break;
    case LOADED_TOO_MUCH:
        put_number(data, 1ull << 50);
        send_type(net, peer, VTI_MSG_LOADED, data, 8);
        break;
    case LOADED_LESS_THAN_BEFORE:
        put_number(data, 1000);
        send_type(net, peer, VTI_MSG_LOADED, data, 8);
        put_number(data, 999);
        send_type(net, peer, VTI_MSG_LOADED, data, 8);
        break;
    case ASSIGNED_TWICE:
        send_type(net, peer, VTI_MSG_ASSIGNED, data, 4);
        break;
    default: break;
    }
}

static void answer_assignment(vti_net *net, vti_net_peer peer, trick t)
{
    uint8_t data[8] = {0};
    if (t == ASSIGNED_NONSENSE) data[0] = 2;
    send_type(net, peer, VTI_MSG_ASSIGNED, data, 4);
    if (t == ASSIGNED_AND_READY) send_type(net, peer, VTI_MSG_READY, data, 8);
}

/* No limit to its memory, no profile. */
static void make_offer(vti_net *net, vti_net_peer peer)
{
    uint8_t payload[VTI_WIRE_OFFER_MAX];
    vti_writer w = {payload, sizeof payload, 0, false};
    vti_encode_offer(&w, &(vti_offer){.page_bytes = 4096});
    send_type(net, peer, VTI_MSG_OFFER, payload, w.bytes);
}

/* Until the main device leaves. */
static void be_tricky(vti_net *net, trick t)
{
    for (;;) {
        vti_net_event event;
        if (vti_net_wait(net, vti_net_after_ms(PATIENCE_MS), &event) != VTI_NET_OK) return;
        if (event.type == VTI_NET_PEER_DOWN) return;
        if (event.type == VTI_NET_MESSAGE && event.header.type == VTI_MSG_CLAIM)
            make_offer(net, event.peer);
        if (event.type == VTI_NET_MESSAGE && event.header.type == VTI_MSG_ASSIGN)
            answer_assignment(net, event.peer, t);
        if (event.type == VTI_NET_MESSAGE && event.header.type == VTI_MSG_MANIFEST)
            play(net, event.peer, t, event.header.message_bytes / VTI_MANIFEST_ENTRY_BYTES);
        vti_net_event_clear(&event);
    }
}

/* Two workers in one process: both want everything. Exit code 0: it came to both at once. */
static void be_two_workers(vti_net *net)
{
    uint8_t data[4] = {0};
    vti_net_peer first = 0, before = 0;
    uint32_t left = 0, switches = 0;
    for (;;) {
        vti_net_event event;
        if (vti_net_wait(net, vti_net_after_ms(PATIENCE_MS), &event) != VTI_NET_OK) _exit(2);
        int type = event.type == VTI_NET_MESSAGE ? event.header.type : 0;
        if (type == VTI_MSG_CLAIM) make_offer(net, event.peer);
        if (type == VTI_MSG_ASSIGN) send_type(net, event.peer, VTI_MSG_ASSIGNED, data, 4);
        if (type == VTI_MSG_MANIFEST) {
            uint32_t count = event.header.message_bytes / VTI_MANIFEST_ENTRY_BYTES;
            uint8_t *wants = malloc(count * 4u);
            for (uint32_t i = 0; i < count; i++) vti_put_u32(wants + 4 * i, i);
            send_type(net, event.peer, VTI_MSG_WANT, wants, count * 4u);
            free(wants);
            left += count;
            first = first ? first : event.peer;
        }
        if (type == VTI_MSG_BLOCK) {
            left--;
            if (before && before != event.peer) switches++;
            before = event.peer;
            if (left == 0) _exit(switches > 4 ? 0 : 1);
        }
        vti_net_event_clear(&event);
    }
}

/* A child process with a worker of our own; its addresses. */
static pid_t start_fake(trick t, char addresses[2][VTI_NET_ADDRESS_MAX])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        vti_net *net;
        vti_net_params params = vti_net_params_default();
        char bound[2][VTI_NET_ADDRESS_MAX] = {"", ""};
        if (vti_net_open(&params, &net, NULL) != VTI_NET_OK) _exit(3);
        for (int i = 0; i < 2; i++)
            if (vti_net_listen(net, "127.0.0.1:0", bound[i], NULL) != VTI_NET_OK) _exit(3);
        if (write(ends[1], bound, sizeof bound) != (ssize_t)sizeof bound) _exit(3);
        if (t == TRICKS) be_two_workers(net);
        be_tricky(net, t);
        vti_net_close(net);
        _exit(0);
    }
    close(ends[1]);
    size_t bytes = 2 * VTI_NET_ADDRESS_MAX;
    assert_int_equal(read(ends[0], addresses, bytes), bytes);
    close(ends[0]);
    return child;
}

static vt_status open_cluster(char addresses[2][VTI_NET_ADDRESS_MAX], size_t count, vt_error *err)
{
    const char *devices[] = {addresses[0], addresses[1]};
    vt_cluster *cluster;
    vt_cluster_params params = vt_cluster_params_default();
    vt_model *model = open_model();
    params.devices = devices;
    params.device_count = count;
    params.split_evenly = true;
    vt_status status = vt_cluster_open(model, &params, &cluster, err);
    vt_model_close(model);
    return status;
}

static void workers_that_ask_for_nonsense(void **state)
{
    (void)state;
    for (int t = 0; t < TRICKS; t++) {
        char addresses[2][VTI_NET_ADDRESS_MAX];
        vt_error err = {.message = ""};
        pid_t child = start_fake((trick)t, addresses);
        vt_status status = open_cluster(addresses, 1, &err);
        if (status != VT_ERR_PROTOCOL) fail_msg("trick %d: %d %s", t, status, err.message);
        if (!strstr(err.message, addresses[0])) fail_msg("trick %d: %s", t, err.message);
        waitpid(child, NULL, 0);
    }
}

static void several_at_once(void **state)
{
    (void)state;
    char addresses[2][VTI_NET_ADDRESS_MAX];
    vt_error err;
    int status;
    pid_t child = start_fake(TRICKS, addresses);
    assert_int_equal(open_cluster(addresses, 2, &err), VT_ERR_NETWORK);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A worker's file counts as the main device's only in the state in which both opened it, and only
 * with the same model in it. */
static void same_file_or_not(void **state)
{
    (void)state;
    char path[] = "/tmp/voltron-same-XXXXXX";
    char command[256];
    close(mkstemp(path));
    snprintf(command, sizeof command, "cp %s %s", default_model, path);
    assert_int_equal(system(command), 0);
    vti_local_model *local;
    vt_log log = {0};
    vt_gguf *gguf;
    vti_file_stamp stamp, later;
    vti_model_identity identity, other;
    vt_model *model = open_model();
    assert_int_equal(vti_local_model_open(path, &log, &local, NULL), VT_OK);
    assert_int_equal(vt_gguf_open(path, &gguf, NULL), VT_OK);
    assert_true(vti_file_stamp_of(gguf, &stamp));
    vti_model_identity_of(gguf, &identity);
    other = identity;
    other.weights[0] ^= 1;
    assert_true(vti_local_model_is(local, &model->geometry, &identity, &stamp));
    assert_false(vti_local_model_is(local, &model->geometry, &other, &stamp));
    assert_true(vti_files_are_as_opened(gguf));
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_false(vti_local_model_is(local, &model->geometry, &identity, &stamp));
    assert_false(vti_files_are_as_opened(gguf));
    assert_true(vti_file_stamp_of(gguf, &later)); /* it is of what was opened */
    assert_memory_equal(&stamp, &later, sizeof stamp);
    vt_gguf_close(gguf);
    vti_local_model_refresh(local, &log);
    assert_int_equal(vt_gguf_open(path, &gguf, NULL), VT_OK);
    assert_true(vti_file_stamp_of(gguf, &later));
    assert_memory_not_equal(&stamp, &later, sizeof stamp);
    assert_true(vti_local_model_is(local, &model->geometry, &identity, &later));
    unlink(path);
    assert_false(vti_local_model_is(local, &model->geometry, &identity, &later));
    vti_local_model_refresh(local, &log); /* nothing is there: as if it had none */
    assert_false(vti_local_model_is(local, &model->geometry, &identity, &later));
    vt_gguf_close(gguf);
    vti_local_model_close(local);
    vt_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_blocks), cmocka_unit_test(wrong_hash),
        cmocka_unit_test(blocks_out_of_order), cmocka_unit_test(workers_that_ask_for_nonsense),
        cmocka_unit_test(several_at_once), cmocka_unit_test(same_file_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
