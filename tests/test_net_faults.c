/* Peers that die, hang, lie or flood: each is an event, and the others do not notice. */
#include "net_support.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- processes that die or stop ----------------------------------------------------------- */

/* Listens, tells the parent where, and takes part until it is killed. */
static int take_part(void *argument)
{
    char address[VTI_NET_ADDRESS_MAX] = { 0 };
    vti_net_params params = vti_net_params_default();
    vti_net *net;
    vti_net_event event;
    params.heartbeat_ms = 50;
    params.heartbeat_misses = 100;
    alarm(60);
    if (vti_net_open(&params, &net, NULL) != VTI_NET_OK ||
        vti_net_listen(net, "127.0.0.1:0", address, NULL) != VTI_NET_OK ||
        write(*(int *)argument, address, sizeof address) != sizeof address)
        return 1;
    while (vti_net_wait(net, VTI_NET_NEVER, &event) == VTI_NET_OK) vti_net_event_clear(&event);
    return 0;
}

typedef struct remote {
    int process;
    vti_net *net;
    vti_net_peer peer;
} remote;

static remote open_remote(void)
{
    int fds[2];
    char address[VTI_NET_ADDRESS_MAX];
    vti_net_params params = vti_net_params_default();
    params.heartbeat_ms = 100;
    assert_int_equal(pipe(fds), 0);
    remote other = { .process = test_net_fork(take_part, &fds[1]) };
    assert_int_equal(read(fds[0], address, sizeof address), sizeof address);
    close(fds[0]);
    close(fds[1]);
    other.net = test_net_open(&params);
    assert_int_equal(vti_net_connect(other.net, address, TEST_NET_MS, &other.peer, NULL),
                     VTI_NET_OK);
    test_net_expect(other.net, VTI_NET_PEER_UP);
    return other;
}

static void close_remote(remote *other)
{
    int exit_status;
    kill(other->process, SIGKILL);
    waitpid(other->process, &exit_status, 0);
    vti_net_close(other->net);
}

static void killed_peer(void **state)
{
    (void)state;
    remote other = open_remote();
    kill(other.process, SIGKILL);
    vti_net_event event = test_net_expect(other.net, VTI_NET_PEER_DOWN);
    assert_int_equal(event.peer, other.peer);
    assert_int_equal(event.status, VTI_NET_ERR_LOST);
    assert_memory_equal(event.reason, "the connection broke", 20);
    close_remote(&other);
}

static void stopped_peer(void **state)
{
    (void)state;
    remote other = open_remote();
    kill(other.process, SIGSTOP);
    vti_net_event event = test_net_expect(other.net, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_LOST);
    assert_string_equal(event.reason, "no sign of life for 300 ms");
    close_remote(&other);
}

static void count_release(void *user) { ++*(int *)user; }

/* The peer stops in the middle of a large message: the memory comes back, and sending fails. */
static void stopped_while_sent_to(void **state)
{
    (void)state;
    enum { BYTES = 32 << 20 };
    int count = 0;
    uint8_t *data = calloc(1, BYTES);
    remote other = open_remote();
    kill(other.process, SIGSTOP);
    vti_frame_header header = { .type = TEST_TYPE };
    vti_net_part part = { data, BYTES };
    assert_int_equal(vti_net_send_borrowed(other.net, other.peer, &header, &part, 1,
                                           count_release, &count), VTI_NET_OK);
    assert_int_equal(vti_net_drain(other.net, other.peer, 0, vti_net_after_ms(TEST_NET_MS)),
                     VTI_NET_ERR_GONE);
    test_net_expect(other.net, VTI_NET_PEER_DOWN);
    assert_int_equal(vti_net_send(other.net, other.peer, &header, &part, 1), VTI_NET_ERR_GONE);
    close_remote(&other);
    assert_int_equal(count, 1);
    free(data);
}

/* We are the ones who were away: the silence was ours, the peer is not to blame. */
static int sleep_through(void *argument)
{
    (void)argument;
    vti_net_params params = vti_net_params_default();
    vti_net *a, *b;
    vti_net_peer peer;
    vti_net_event event;
    char address[VTI_NET_ADDRESS_MAX];
    if (vti_net_open(&params, &a, NULL) || vti_net_open(&params, &b, NULL)) return 1;
    if (vti_net_listen(a, "127.0.0.1:0", address, NULL)) return 2;
    if (vti_net_connect(b, address, TEST_NET_MS, &peer, NULL)) return 3;
    if (vti_net_wait(b, vti_net_after_ms(TEST_NET_MS), &event) != VTI_NET_OK) return 4;
    if (event.type != VTI_NET_PEER_UP) return 5;
    raise(SIGSTOP);
    vti_net_status status = vti_net_wait(b, vti_net_after_ms(700), &event);
    return status == VTI_NET_ERR_TIMEOUT ? 0 : 6;
}

static void our_own_absence(void **state)
{
    (void)state;
    int exit_status, child = test_net_fork(sleep_through, NULL);
    assert_int_equal(waitpid(child, &exit_status, WUNTRACED), child);
    assert_true(WIFSTOPPED(exit_status));
    poll(NULL, 0, 1500);
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
}

/* --- connecting to nothing, or to the wrong thing ----------------------------------------- */

static vti_net_event connect_in_vain(const char *address, uint32_t timeout_ms)
{
    vti_net *net = test_net_open(NULL);
    vti_net_peer peer;
    assert_int_equal(vti_net_connect(net, address, timeout_ms, &peer, NULL), VTI_NET_OK);
    vti_net_event event = test_net_expect(net, VTI_NET_PEER_DOWN);
    assert_int_equal(event.peer, peer);
    assert_string_equal(event.address, address);
    assert_false(event.incoming);
    vti_net_close(net);
    return event;
}

static void nothing_listens(void **state)
{
    (void)state;
    char address[VTI_NET_ADDRESS_MAX];
    vti_net *net = test_net_open(NULL);
    assert_int_equal(vti_net_listen(net, "127.0.0.1:0", address, NULL), VTI_NET_OK);
    vti_net_close(net);
    uint64_t begin = vti_net_now_ns();
    vti_net_event event = connect_in_vain(address, TEST_NET_MS);
    assert_int_equal(event.status, VTI_NET_ERR_UNREACHABLE);
    assert_string_equal(event.reason, "connection refused");
    assert_true(vti_net_now_ns() - begin < TEST_NET_MS * 1000000ull / 2); /* not by the timeout */
}

static void name_that_does_not_exist(void **state)
{
    (void)state;
    /* Where no name server answers, the deadline has to do; the net closes with the look-up
     * still under way. */
    vti_net_event event = connect_in_vain("no-such-host.invalid:7001", 1500);
    if (event.status == VTI_NET_ERR_UNREACHABLE)
        assert_memory_equal(event.reason, "the name \"no-such-host.invalid\" is not known", 42);
    else
        assert_string_equal(event.reason, "the name could not be looked up within 1500 ms");
}

static int silent_listener(char address[VTI_NET_ADDRESS_MAX])
{
    struct sockaddr_storage where = { .ss_family = AF_INET };
    socklen_t bytes = sizeof where;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(listen(fd, 5), 0); /* the system picks a port */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&where, &bytes), 0);
    const uint8_t *port = (const uint8_t *)&where + 2;
    snprintf(address, VTI_NET_ADDRESS_MAX, "127.0.0.1:%u", (unsigned)(port[0] << 8 | port[1]));
    return fd;
}

static void listener_that_says_nothing(void **state)
{
    (void)state;
    char address[VTI_NET_ADDRESS_MAX];
    int fd = silent_listener(address);
    vti_net_event event = connect_in_vain(address, 200);
    assert_int_equal(event.status, VTI_NET_ERR_TIMEOUT);
    assert_string_equal(event.reason, "something accepts connections there but did not answer as "
                        "Voltron within 200 ms");
    close(fd);
}

static void listener_that_hangs_up(void **state)
{
    (void)state;
    char address[VTI_NET_ADDRESS_MAX];
    int fd = silent_listener(address);
    vti_net *net = test_net_open(NULL);
    vti_net_peer peer;
    assert_int_equal(vti_net_connect(net, address, TEST_NET_MS, &peer, NULL), VTI_NET_OK);
    int accepted = accept(fd, NULL, NULL);
    char preamble[48];
    assert_int_equal(recv(accepted, preamble, sizeof preamble, MSG_WAITALL), sizeof preamble);
    close(accepted);
    vti_net_event event = test_net_expect(net, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_HANDSHAKE);
    assert_string_equal(event.reason, "it closed the connection before it said what it is");
    vti_net_close(net);
    close(fd);
}

/* --- listening ---------------------------------------------------------------------------- */

static void expect_no_listener(vti_net *net, const char *address, vti_net_status status,
                               const char *part)
{
    vti_net_error err = { 0 };
    assert_int_equal(vti_net_listen(net, address, NULL, &err), status);
    if (!strstr(err.message, part) || !strstr(err.message, address))
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void listening_where_one_may_not(void **state)
{
    (void)state;
    char address[VTI_NET_ADDRESS_MAX];
    vti_net *net = test_net_open(NULL);
    expect_no_listener(net, "0.0.0.0:0", VTI_NET_ERR_KEY, "without a cluster key");
    expect_no_listener(net, "*:0", VTI_NET_ERR_KEY, "--key FILE, or listen on 127.0.0.1");
    expect_no_listener(net, "[::]:0", VTI_NET_ERR_KEY, "without a cluster key");
    expect_no_listener(net, "192.0.2.1:0", VTI_NET_ERR_KEY, "without a cluster key");
    expect_no_listener(net, "tablet:0", VTI_NET_ERR_ARGUMENT, "IP address of this machine");
    assert_int_equal(vti_net_listen(net, "127.0.0.1:0", address, NULL), VTI_NET_OK);
    expect_no_listener(net, address, VTI_NET_ERR_ADDRESS, "address already in use");
    vti_net_close(net);

    vti_net_key key = test_net_key("sixteen bytes or more");
    vti_net_params params = vti_net_params_default();
    params.key = &key;
    net = test_net_open(&params);
    assert_int_equal(vti_net_listen(net, "*:0", address, NULL), VTI_NET_OK);
    expect_no_listener(net, "192.0.2.1:0", VTI_NET_ERR_ADDRESS, "cannot listen");
    vti_net_close(net);
}

/* --- keys and versions -------------------------------------------------------------------- */

static void expect_both(const vti_net_key *key_a, const vti_net_key *key_b, const char *reason_a,
                        const char *reason_b)
{
    char address[VTI_NET_ADDRESS_MAX];
    vti_net_params params = vti_net_params_default();
    vti_net_peer peer;
    params.key = key_a;
    vti_net *a = test_net_open(&params);
    params.key = key_b;
    vti_net *b = test_net_open(&params);
    assert_int_equal(vti_net_listen(b, "127.0.0.1:0", address, NULL), VTI_NET_OK);
    assert_int_equal(vti_net_connect(a, address, TEST_NET_MS, &peer, NULL), VTI_NET_OK);
    vti_net_event event = test_net_expect(b, VTI_NET_PEER_REJECTED);
    assert_int_equal(event.status, VTI_NET_ERR_KEY);
    assert_int_equal(event.peer, 0);
    assert_string_equal(event.reason, reason_b);
    event = test_net_expect(a, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_KEY);
    assert_string_equal(event.reason, reason_a);
    vti_net_close(a);
    vti_net_close(b);
}

static void keys_that_differ(void **state)
{
    (void)state;
    static const char both[] = "the other side has a different cluster key";
    static const char mine[] = "this side has a cluster key, the other side has none: give both "
                               "the same key, or none on either side";
    static const char theirs[] = "the other side has a cluster key, this side has none: give both "
                                 "the same key, or none on either side";
    vti_net_key one = test_net_key("sixteen bytes or more"), two = test_net_key("another key....!");
    expect_both(&one, &two, both, both);
    expect_both(&one, NULL, mine, theirs);
    expect_both(NULL, &one, theirs, mine);
}

static size_t receive_all(int fd, void *buffer, size_t capacity)
{
    size_t have = 0;
    for (ssize_t count; have < capacity; have += (size_t)count) {
        count = recv(fd, (char *)buffer + have, capacity - have, 0);
        if (count <= 0) break;
    }
    return have;
}

static void another_version(void **state)
{
    (void)state;
    char address[VTI_NET_ADDRESS_MAX];
    uint8_t answer[256];
    vti_net *net = test_net_open(NULL);
    assert_int_equal(vti_net_listen(net, "127.0.0.1:0", address, NULL), VTI_NET_OK);
    int fd = test_net_dial(address);
    assert_int_equal(send(fd, "VLTN\x09\0\0\0", 8, 0), 8);
    vti_net_event event = test_net_expect(net, VTI_NET_PEER_REJECTED);
    assert_int_equal(event.status, VTI_NET_ERR_HANDSHAKE);
    assert_string_equal(event.reason, "this side speaks wire version 4, the other side version 9: "
                        "run the same Voltron release on both");
    assert_int_equal(receive_all(fd, answer, sizeof answer), 48);
    assert_memory_equal(answer, "VLTN\x04\0\0\0", 8);
    close(fd);
    vti_net_close(net);
}

/* --- strangers ---------------------------------------------------------------------------- */

typedef struct host {
    vti_net *net;
    char address[VTI_NET_ADDRESS_MAX];
} host;

static host open_host(const vti_net_params *params)
{
    host server = { .net = test_net_open(params) };
    assert_int_equal(vti_net_listen(server.net, "127.0.0.1:0", server.address, NULL), VTI_NET_OK);
    return server;
}

/* A proper peer still gets in and is served. Rejections before that are passed over. */
static void expect_served(host *server)
{
    vti_net *client = test_net_open(NULL);
    vti_net_peer peer;
    vti_net_event event;
    assert_int_equal(vti_net_connect(client, server->address, TEST_NET_MS, &peer, NULL),
                     VTI_NET_OK);
    do {
        assert_int_equal(vti_net_wait(server->net, vti_net_after_ms(TEST_NET_MS), &event),
                         VTI_NET_OK);
    } while (event.type == VTI_NET_PEER_REJECTED);
    assert_int_equal(event.type, VTI_NET_PEER_UP);
    vti_net_peer of_server = event.peer;
    test_net_expect(client, VTI_NET_PEER_UP);
    uint8_t data[2000];
    test_net_fill(data, sizeof data, 1);
    test_net_send(client, peer, 1, data, sizeof data);
    do {
        assert_int_equal(vti_net_wait(server->net, vti_net_after_ms(TEST_NET_MS), &event),
                         VTI_NET_OK);
    } while (event.type == VTI_NET_PEER_REJECTED);
    assert_int_equal(event.type, VTI_NET_MESSAGE);
    assert_int_equal(event.peer, of_server);
    test_net_check(event.payload, sizeof data, 1);
    vti_net_event_clear(&event);
    vti_net_close(client);
    do {
        assert_int_equal(vti_net_wait(server->net, vti_net_after_ms(TEST_NET_MS), &event),
                         VTI_NET_OK);
    } while (event.type == VTI_NET_PEER_REJECTED);
    assert_int_equal(event.type, VTI_NET_PEER_DOWN);
}

static void garbage(void **state)
{
    (void)state;
    host server = open_host(NULL);
    int fd = test_net_dial(server.address);
    static const char request[] = "GET / HTTP/1.1\r\nHost: tablet\r\n\r\n";
    assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
    vti_net_event event = test_net_expect(server.net, VTI_NET_PEER_REJECTED);
    assert_string_equal(event.reason, "it does not speak Voltron's protocol (it sent "
                        "\"GET / HT\")");
    char answer[16];
    assert_int_equal(receive_all(fd, answer, sizeof answer), 0);
    close(fd);
    test_random random = { .state = 0x9e3779b97f4a7c15u };
    for (int round = 0; round < 30; round++) {
        uint8_t noise[3000];
        for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)test_random_u64(&random);
        if (round % 3 == 1) memcpy(noise, "VLTN\x04\0\x02\0\0\0\0\0\0\0\0\0", 16);
        if (round % 3 == 2) memcpy(noise, "VLTN\x04\0\x03\0\0\0\0\0\0\0\0\0", 16);
        fd = test_net_dial(server.address);
        send(fd, noise, 8 + test_random_u64(&random) % (sizeof noise - 8), MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        event = test_net_expect(server.net, VTI_NET_PEER_REJECTED);
        assert_int_not_equal(event.status, VTI_NET_OK);
        close(fd);
    }
    expect_served(&server);
    vti_net_close(server.net);
}

/* More silent connections than are allowed, some of which send a byte now and then. */
static void slow_loris(void **state)
{
    (void)state;
    enum { COUNT = 24 };
    vti_net_params params = vti_net_params_default();
    params.handshakes_max = 8;
    params.peers_max = 11; /* room for a real one, if strangers stay within their limit */
    params.handshake_timeout_ms = 400;
    host server = open_host(&params);
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++) fds[i] = test_net_dial(server.address);
    expect_served(&server);
    uint8_t byte = 'V';
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < COUNT; i += 2) send(fds[i], &byte, 1, MSG_NOSIGNAL);
        byte = (uint8_t)"VLTN\x04\0\0\0"[(round + 1) % 8];
        poll(NULL, 0, 100);
    }
    expect_served(&server);
    for (int i = 0; i < COUNT; i++) { /* all of them were closed */
        char answer;
        ssize_t count = recv(fds[i], &answer, 1, 0);
        assert_true(count == 0 || (count < 0 && errno == ECONNRESET));
        close(fds[i]);
    }
    vti_net_close(server.net);
}

/* After a proper handshake a peer breaks the protocol: it is told why. */
static void malformed_frame(void **state)
{
    (void)state;
    host server = open_host(NULL);
    int fd = test_net_dial(server.address);
    static const uint8_t session[] = "VLTN\x04\0\x02\0\0\0\0\0\0\0\0\0"
                                     "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                     "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                     "VLTF\x04\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                     "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                     "VLTF\x04\x0c\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                     "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_int_equal(send(fd, session, sizeof session - 1, 0), sizeof session - 1);
    test_net_expect(server.net, VTI_NET_PEER_UP);
    vti_net_event event = test_net_expect(server.net, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_PROTOCOL);
    assert_string_equal(event.reason, "a frame is malformed: unknown frame type");
    uint8_t answer[512];
    size_t size = receive_all(fd, answer, sizeof answer);
    /* preamble, HELLO, ERROR with the text */
    assert_int_equal(size, 48 + 48 + 48 + strlen(event.reason));
    assert_int_equal(answer[48 + 48 + 5], VTI_FRAME_ERROR);
    assert_memory_equal(answer + 144, event.reason, strlen(event.reason));
    close(fd);

    /* The same session cut off after every byte. */
    for (size_t cut = 0; cut < sizeof session - 1; cut += 1 + cut % 3) {
        fd = test_net_dial(server.address);
        assert_int_equal(send(fd, session, cut, 0), (ssize_t)cut);
        close(fd);
        assert_int_equal(vti_net_wait(server.net, vti_net_after_ms(TEST_NET_MS), &event),
                         VTI_NET_OK);
        if (cut < 96) {
            assert_int_equal(event.type, VTI_NET_PEER_REJECTED);
            continue;
        }
        assert_int_equal(event.type, VTI_NET_PEER_UP);
        event = test_net_expect(server.net, VTI_NET_PEER_DOWN);
        assert_int_equal(event.status, VTI_NET_ERR_LOST);
    }
    expect_served(&server);
    vti_net_close(server.net);
}

static void many_connections(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    params.peers_max = 6;
    host server = open_host(&params);
    for (int round = 0; round < 20; round++) expect_served(&server);
    vti_net *client = test_net_open(NULL);
    vti_net_peer peers[7];
    for (int i = 0; i < 6; i++) {
        assert_int_equal(vti_net_connect(client, server.address, TEST_NET_MS, &peers[i], NULL),
                         VTI_NET_OK);
        test_net_expect(client, VTI_NET_PEER_UP);
        test_net_expect(server.net, VTI_NET_PEER_UP);
    }
    assert_int_equal(vti_net_connect(client, server.address, TEST_NET_MS, &peers[6], NULL),
                     VTI_NET_OK);
    vti_net_event event = test_net_expect(server.net, VTI_NET_PEER_REJECTED);
    assert_int_equal(event.status, VTI_NET_ERR_FULL);
    event = test_net_expect(client, VTI_NET_PEER_DOWN);
    assert_int_equal(event.peer, peers[6]);
    vti_net_error err;
    assert_int_equal(vti_net_connect(server.net, server.address, TEST_NET_MS, &peers[6], &err),
                     VTI_NET_ERR_FULL);
    vti_net_close(client);
    for (int i = 0; i < 6; i++) test_net_expect(server.net, VTI_NET_PEER_DOWN);
    expect_served(&server);
    vti_net_close(server.net);
}

/* All descriptors are taken for a while: the listener waits and goes on. */
static int out_of_descriptors(void *argument)
{
    (void)argument;
    vti_net_params params = vti_net_params_default();
    vti_net *a, *b;
    vti_net_peer peer;
    vti_net_event event;
    char address[VTI_NET_ADDRESS_MAX];
    int taken[64], count = 0;
    if (vti_net_open(&params, &a, NULL) || vti_net_open(&params, &b, NULL)) return 1;
    if (vti_net_listen(a, "127.0.0.1:0", address, NULL)) return 2;
    if (vti_net_wait(a, vti_net_after_ms(50), &event) != VTI_NET_ERR_TIMEOUT) return 3;
    int highest = dup(0);
    struct rlimit limit = { (rlim_t)highest + 8, (rlim_t)highest + 8 };
    if (highest < 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) return 4;
    while (count < 64 && (taken[count] = dup(0)) >= 0) count++;
    close(taken[--count]); /* one for our end of the connection, none for the other */
    if (vti_net_connect(b, address, TEST_NET_MS, &peer, NULL)) return 5;
    if (vti_net_wait(a, vti_net_after_ms(400), &event) != VTI_NET_ERR_TIMEOUT) return 6;
    while (count > 0) close(taken[--count]);
    if (vti_net_wait(a, vti_net_after_ms(TEST_NET_MS), &event) != VTI_NET_OK) return 7;
    if (event.type != VTI_NET_PEER_UP) return 8;
    vti_net_close(a);
    vti_net_close(b);
    return 0;
}

static void descriptors_run_out(void **state)
{
    (void)state;
    int exit_status, child = test_net_fork(out_of_descriptors, NULL);
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_peer),
        cmocka_unit_test(stopped_peer),
        cmocka_unit_test(stopped_while_sent_to),
        cmocka_unit_test(our_own_absence),
        cmocka_unit_test(descriptors_run_out),
        cmocka_unit_test(nothing_listens),
        cmocka_unit_test(name_that_does_not_exist),
        cmocka_unit_test(listener_that_says_nothing),
        cmocka_unit_test(listener_that_hangs_up),
        cmocka_unit_test(listening_where_one_may_not),
        cmocka_unit_test(keys_that_differ),
        cmocka_unit_test(another_version),
        cmocka_unit_test(garbage),
        cmocka_unit_test(slow_loris),
        cmocka_unit_test(malformed_frame),
        cmocka_unit_test(many_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
