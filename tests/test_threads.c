/* Several sessions on one model from several threads, and calls that may come from anywhere. What
 * each thread computes must be what one thread alone computes. Run it with MODE=tsan too. */
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "voltron.h"

static const char default_model[] = "src/assets/stories-4m-f16.gguf";
static const char prompt[] = "Once upon a time there was";
enum { THREADS = 4, TOKENS = 12, FED = 100 };

static vt_model *open_model(void)
{
    vt_model *model;
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.threads = 2; /* also on one core: sessions compete for the pool */
    if (vt_model_open(default_model, &params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

static vt_session *open_session(const vt_model *model, uint64_t seed)
{
    vt_session *session;
    vt_error err;
    vt_session_params params = vt_session_params_default();
    params.context_tokens = 400;
    params.batch_tokens = 4;
    params.sampling.seed = seed;
    params.sampling.temperature = 1;
    params.sampling.logprobs = 2;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    return session;
}

/* --- the same as alone ------------------------------------------------------------------------ */

typedef struct conversation {
    const vt_model *model;
    uint64_t seed;
    char path[64];
    vt_token tokens[2 * TOKENS];
    float logprobs[2 * TOKENS];
    int done; /* cmocka's assertions belong to the main thread */
} conversation;

static bool draw(vt_session *s, conversation *c, int from)
{
    vt_drawn drawn;
    for (int i = from; i < from + TOKENS; i++) {
        if (vt_session_next(s, &c->tokens[i], NULL) != VT_OK) return false;
        if (vt_session_get_drawn(s, &drawn, NULL) != VT_OK) return false;
        c->logprobs[i] = drawn.drawn.logprob;
    }
    return true;
}

/* Everything a conversation does: opening, text, drawing, a file, another session, closing. */
static void *converse(void *user)
{
    conversation *c = user;
    vt_model_info info;
    const void *blob;
    size_t bytes;
    c->done = 0;
    vt_model_get_info(c->model, &info);
    vt_session *s = open_session(c->model, c->seed);
    if (vt_session_feed_text(s, prompt, strlen(prompt), VT_TOKENIZE_BOS, NULL) != VT_OK ||
        !draw(s, c, 0) || vt_session_save(s, c->path, &c->seed, sizeof c->seed, NULL) != VT_OK)
        return NULL;
    vt_session_close(s);
    s = open_session(c->model, 0);
    if (vt_session_load(s, c->path, &blob, &bytes, NULL) != VT_OK || bytes != sizeof c->seed ||
        memcmp(blob, &c->seed, bytes) != 0 || !draw(s, c, TOKENS))
        return NULL;
    vt_session_close(s);
    c->done = 1;
    return NULL;
}

static void sessions_in_threads(void **state)
{
    (void)state;
    static conversation alone[THREADS], together[THREADS];
    char folder[] = "/tmp/voltron-threads-XXXXXX";
    pthread_t thread[THREADS];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < THREADS; i++) {
        snprintf(alone[i].path, sizeof alone[i].path, "%s/%d", folder, i);
        alone[i].seed = together[i].seed = 100 + (uint64_t)i;
        memcpy(together[i].path, alone[i].path, sizeof alone[i].path);
    }
    /* The threads come first: they meet a model whose weights are not loaded yet. */
    vt_model *model = open_model();
    for (int i = 0; i < THREADS; i++) {
        together[i].model = model;
        assert_int_equal(pthread_create(&thread[i], NULL, converse, &together[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        alone[i].model = model;
        converse(&alone[i]);
        assert_true(alone[i].done && together[i].done);
        assert_memory_equal(alone[i].tokens, together[i].tokens, sizeof alone[i].tokens);
        assert_memory_equal(alone[i].logprobs, together[i].logprobs, sizeof alone[i].logprobs);
        if (i) assert_memory_not_equal(alone[i].tokens, alone[0].tokens, sizeof alone[i].tokens);
        unlink(alone[i].path);
    }
    vt_model_close(model);
    assert_int_equal(rmdir(folder), 0);
}

/* --- text ------------------------------------------------------------------------------------- */

static void *tokenize(void *user)
{
    const vt_model *model = user;
    static const char text[] = "One day, a girl named Lily found a needle. <|im_start|> "
                               "\xC3\xA9t\xC3\xA9";
    vt_token tokens[200];
    size_t first = 0, count, bytes;
    for (int round = 0; round < 50; round++) {
        if (vt_tokenize(model, text, strlen(text), VT_TOKENIZE_SPECIAL, tokens, 200, &count,
                        NULL) != VT_OK)
            return NULL;
        if (round == 0) first = count;
        if (count != first) return NULL;
        for (size_t i = 0; i < count; i++)
            if (!vt_token_bytes(model, tokens[i], &bytes)) return NULL;
    }
    return user;
}

static void text_in_threads(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    void *result;
    vt_model *model = open_model();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, tokenize, model), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], &result);
        assert_ptr_equal(result, model);
    }
    vt_model_close(model);
}

/* --- cancelling ------------------------------------------------------------------------------- */

typedef struct meeting {
    vt_session *session;
    atomic_int drawn, cancelled;
} meeting;

static void *cancel_after_five(void *user)
{
    meeting *m = user;
    while (atomic_load(&m->drawn) < 5) usleep(100);
    vt_session_cancel(m->session);
    atomic_store(&m->cancelled, 1);
    return NULL;
}

/* With the fifth token waits until the other thread has cancelled. */
static bool count_token(void *user, const vt_drawn *token)
{
    meeting *m = user;
    (void)token;
    if (atomic_fetch_add(&m->drawn, 1) == 4)
        while (!atomic_load(&m->cancelled)) usleep(100);
    return true;
}

static void cancelled_answer(void **state)
{
    (void)state;
    pthread_t thread;
    vt_stop_reason reason;
    vt_error err;
    vt_token token;
    vt_model *model = open_model();
    meeting m = {.session = open_session(model, 1)};
    vt_generation g = vt_generation_default();
    g.on_token = count_token;
    g.user = &m;
    assert_int_equal(vt_session_feed_text(m.session, prompt, strlen(prompt), 0, &err), VT_OK);
    assert_int_equal(pthread_create(&thread, NULL, cancel_after_five, &m), 0);
    assert_int_equal(vt_session_generate_with(m.session, &g, &reason, &err), VT_OK);
    pthread_join(thread, NULL);
    assert_int_equal(reason, VT_STOP_CALLER);
    assert_int_equal(atomic_load(&m.drawn), 5);
    assert_int_equal(vt_session_next(m.session, &token, &err), VT_OK); /* served once */
    vt_session_close(m.session);
    vt_model_close(model);
}

typedef struct delayed {
    vt_session *session;
    long nanoseconds;
} delayed;

static void *cancel_later(void *user)
{
    delayed *d = user;
    struct timespec time = {0, d->nanoseconds};
    nanosleep(&time, NULL);
    vt_session_cancel(d->session);
    return NULL;
}

/* A prefill that is cancelled anywhere goes on with the next call as if nothing had happened. */
static void cancelled_prefill(void **state)
{
    (void)state;
    vt_token ids[FED], expected, token;
    vt_error err;
    vt_model *model = open_model();
    for (int i = 0; i < FED; i++) ids[i] = 10 + i;
    vt_session *session = open_session(model, 3);
    assert_int_equal(vt_session_feed(session, ids, FED, &err), VT_OK);
    assert_int_equal(vt_session_next(session, &expected, &err), VT_OK);
    int cancelled = 0;
    for (int round = 0; round < 8; round++) {
        pthread_t thread;
        delayed d = {session, 300000L * round};
        assert_int_equal(vt_session_rewind(session, 0, &err), VT_OK);
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, &d), 0);
        vt_status status = vt_session_feed(session, ids, FED, &err);
        pthread_join(thread, NULL);
        cancelled += status == VT_ERR_CANCELLED;
        if (status == VT_OK) { /* it came too late: the next call that computes takes it */
            assert_int_equal(vt_session_rewind(session, FED - 1, &err), VT_OK);
            status = vt_session_feed(session, &ids[FED - 1], 1, &err);
        }
        assert_int_equal(status, VT_ERR_CANCELLED);
        assert_int_equal(vt_session_next(session, &token, &err), VT_OK);
        assert_int_equal(token, expected);
    }
    printf("%d of 8 prefills were cancelled\n", cancelled);
    vt_session_close(session);
    vt_model_close(model);
}

static vt_session *interruptible;

static void on_alarm(int number)
{
    (void)number;
    vt_session_cancel(interruptible);
}

/* Raises a signal in the middle of the answer; its handler cancels. */
static bool raise_alarm(void *user, const vt_drawn *token)
{
    int *left = user;
    (void)token;
    if (--*left == 0) raise(SIGALRM);
    return true;
}

static void cancelled_by_a_signal(void **state)
{
    (void)state;
    vt_stop_reason reason;
    vt_error err;
    int left = 3;
    vt_model *model = open_model();
    interruptible = open_session(model, 1);
    signal(SIGALRM, on_alarm);
    vt_generation g = {.max_tokens = 100, .on_token = raise_alarm, .user = &left};
    assert_int_equal(vt_session_feed_text(interruptible, prompt, strlen(prompt), 0, &err), VT_OK);
    assert_int_equal(vt_session_generate_with(interruptible, &g, &reason, &err), VT_OK);
    assert_int_equal(reason, VT_STOP_CALLER);
    assert_int_equal(left, 0);
    signal(SIGALRM, SIG_DFL);
    vt_session_close(interruptible);
    vt_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_in_threads), cmocka_unit_test(text_in_threads),
        cmocka_unit_test(cancelled_answer), cmocka_unit_test(cancelled_prefill),
        cmocka_unit_test(cancelled_by_a_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
