/* Connecting by name, with a name service of our own in place of the system's: getaddrinfo and
 * freeaddrinfo below are the ones that libuv calls. */
#include "net_support.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool answering = true; /* false: look-ups hang */
static int hanging, answered;

static struct addrinfo *address(const char *number, const char *port, struct addrinfo *next)
{
    struct { struct addrinfo info; struct sockaddr_in v4; } *both = calloc(1, sizeof *both);
    both->v4.sin_family = AF_INET;
    both->v4.sin_port = htons((uint16_t)atoi(port));
    inet_pton(AF_INET, number, &both->v4.sin_addr);
    both->info = (struct addrinfo){ .ai_family = AF_INET, .ai_socktype = SOCK_STREAM,
                                    .ai_addrlen = sizeof both->v4, .ai_next = next,
                                    .ai_addr = (struct sockaddr *)&both->v4 };
    return &both->info;
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    (void)hints;
    pthread_mutex_lock(&lock);
    hanging++;
    pthread_cond_broadcast(&changed);
    while (!answering) pthread_cond_wait(&changed, &lock);
    hanging--;
    answered++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (strcmp(host, "several.test") == 0) {
        *out = address("127.0.0.3", service,
                       address("127.0.0.2", service, address("127.0.0.1", service, NULL)));
        return 0;
    }
    if (strcmp(host, "elsewhere.test") == 0) {
        *out = address("127.0.0.3", service, address("127.0.0.2", service, NULL));
        return 0;
    }
    return EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *list)
{
    while (list) {
        struct addrinfo *next = list->ai_next;
        free(list);
        list = next;
    }
}

static void answer(bool now)
{
    pthread_mutex_lock(&lock);
    answering = now;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_until_hanging(int count)
{
    pthread_mutex_lock(&lock);
    while (hanging < count) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* `name` with the port that `server` listens on at 127.0.0.1 only. */
static vti_net_peer connect_to(vti_net *client, vti_net *server, const char *name,
                               uint32_t timeout_ms)
{
    char bound[VTI_NET_ADDRESS_MAX], target[VTI_NET_ADDRESS_MAX];
    vti_net_peer peer;
    assert_int_equal(vti_net_listen(server, "127.0.0.1:0", bound, NULL), VTI_NET_OK);
    snprintf(target, sizeof target, "%s%s", name, strrchr(bound, ':'));
    assert_int_equal(vti_net_connect(client, target, timeout_ms, &peer, NULL), VTI_NET_OK);
    return peer;
}

static void all_addresses_are_tried(void **state)
{
    (void)state;
    vti_net *client = test_net_open(NULL), *server = test_net_open(NULL);
    vti_net_peer peer = connect_to(client, server, "several.test", TEST_NET_MS);
    vti_net_event event = test_net_expect(client, VTI_NET_PEER_UP);
    assert_int_equal(event.peer, peer);
    assert_memory_equal(event.address, "several.test:", 13);
    test_net_expect(server, VTI_NET_PEER_UP);
    vti_net_close(client);
    vti_net_close(server);
}

static void no_address_answers(void **state)
{
    (void)state;
    vti_net *client = test_net_open(NULL), *server = test_net_open(NULL);
    connect_to(client, server, "elsewhere.test", TEST_NET_MS);
    vti_net_event event = test_net_expect(client, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_UNREACHABLE);
    assert_string_equal(event.reason, "connection refused");
    vti_net_close(client);
    vti_net_close(server);
}

static void unknown_name(void **state)
{
    (void)state;
    vti_net *client = test_net_open(NULL), *server = test_net_open(NULL);
    connect_to(client, server, "unknown.test", TEST_NET_MS);
    vti_net_event event = test_net_expect(client, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_UNREACHABLE);
    assert_memory_equal(event.reason, "the name \"unknown.test\" is not known: ", 38);
    vti_net_close(client);
    vti_net_close(server);
}

/* The answer comes when nobody wants it any more, with the net still open. */
static void answer_after_the_deadline(void **state)
{
    (void)state;
    vti_net *client = test_net_open(NULL), *server = test_net_open(NULL);
    answer(false);
    connect_to(client, server, "several.test", 60);
    vti_net_event event = test_net_expect(client, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_TIMEOUT);
    assert_string_equal(event.reason, "the name could not be looked up within 60 ms");
    answer(true);
    assert_int_equal(vti_net_wait(client, vti_net_after_ms(50), &event), VTI_NET_ERR_TIMEOUT);
    connect_to(client, server, "several.test", TEST_NET_MS);
    test_net_expect(client, VTI_NET_PEER_UP);
    vti_net_close(client);
    vti_net_close(server);
}

/* Closing does not wait for a name service that hangs; what is left is freed when it answers
 * (LeakSanitizer and ThreadSanitizer watch). */
static void closed_during_a_look_up(void **state)
{
    (void)state;
    vti_net *client = test_net_open(NULL), *server = test_net_open(NULL);
    answer(false);
    connect_to(client, server, "several.test", TEST_NET_MS);
    wait_until_hanging(1);
    int before = answered;
    vti_net_close(client);
    assert_int_equal(answered, before);
    vti_net_close(server);
    answer(true);
    pthread_mutex_lock(&lock);
    while (answered == before) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    usleep(100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_addresses_are_tried),
        cmocka_unit_test(no_address_answers),
        cmocka_unit_test(unknown_name),
        cmocka_unit_test(answer_after_the_deadline),
        cmocka_unit_test(closed_during_a_look_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
