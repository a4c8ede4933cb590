/* The link matrix: paths over access points, groups and switches, airtime groups, measurements. */
#include "../src/cluster_links.h"

#include <math.h>
#include <string.h>

#include "support.h"

static vti_cluster_media media;
static vti_plan_cluster cluster;

static void start(unsigned devices)
{
    memset(&media, 0, sizeof media);
    memset(&cluster, 0xff, sizeof cluster);
    media.devices = devices;
}

static unsigned network(const char *medium, unsigned hub, unsigned site)
{
    media.network[media.networks] = (vti_network){vti_medium_find(medium), hub, site};
    assert_non_null(media.network[media.networks].medium);
    return media.networks++;
}

static void attach(unsigned device, unsigned to, double rssi_dbm)
{
    vti_device_media *d = &media.device[device];
    d->attachment[d->attachments++] = (vti_attachment){.network = to, .rssi_dbm = rssi_dbm};
}

static unsigned links(void)
{
    unsigned where;
    bool is_network;
    const char *wrong = vti_cluster_media_check(&media, &where, &is_network);
    if (wrong) fail_msg("%s %u: %s", is_network ? "network" : "device", where, wrong);
    unsigned reached = vti_cluster_links(&media, &cluster);
    for (unsigned a = 0; a < media.devices; a++)
        for (unsigned b = 0; b < media.devices; b++) {
            vti_plan_link link = cluster.link[a][b], back = cluster.link[b][a];
            assert_true(link.latency_s == back.latency_s && link.bytes_per_s == back.bytes_per_s);
            assert_int_equal(link.group, back.group);
            assert_true(isfinite(link.latency_s) && link.latency_s >= 0);
            assert_true(isfinite(link.bytes_per_s) && link.bytes_per_s > 0);
            assert_in_range(link.group, 0, VTI_PLAN_GROUPS_MAX);
        }
    return reached;
}

static void expect(unsigned a, unsigned b, double latency_s, double bytes_per_s, unsigned group)
{
    vti_plan_link link = cluster.link[a][b];
    if (fabs(link.latency_s - latency_s) > 1e-9 * latency_s ||
        fabs(link.bytes_per_s - bytes_per_s) > 1e-9 * bytes_per_s || link.group != group)
        fail_msg("%u-%u: %g s, %g bytes/s, group %u", a, b, link.latency_s, link.bytes_per_s,
                 link.group);
}

static void expect_none(unsigned a, unsigned b)
{
    expect(a, b, VTI_LINK_NONE_LATENCY_S, VTI_LINK_NONE_BYTES_PER_S, 0);
}

static double capacity(const char *medium, double rssi_dbm)
{
    return vti_medium_bytes_per_s(vti_medium_find(medium), rssi_dbm);
}

static double delay(const char *medium, double rssi_dbm)
{
    return vti_medium_latency_s(vti_medium_find(medium), rssi_dbm);
}

/* Through an access point every byte is sent twice, at each client's own rate. */
static void access_point_takes_airtime_twice(void **state)
{
    (void)state;
    start(3);
    unsigned home = network("wifi-ac-80", VTI_HUB_OUTSIDE, 0);
    attach(0, home, -50);
    attach(1, home, -50);
    attach(2, home, -70);
    assert_int_equal(links(), 7);
    double near = capacity("wifi-ac-80", -50), far = capacity("wifi-ac-80", -70);
    expect(0, 1, 2 * delay("wifi-ac-80", -50), near / 2, 1);
    expect(1, 2, delay("wifi-ac-80", -50) + delay("wifi-ac-80", -70), near * far / (near + far), 1);
    assert_true(cluster.link[0][2].bytes_per_s < far);
}

/* The owner of a group is one hop from each of its clients; these are two from each other. */
static void group_owner_relays(void **state)
{
    (void)state;
    start(3);
    unsigned group = network("wifi-direct", 0, 0);
    attach(0, group, VTI_RSSI_UNKNOWN);
    attach(1, group, -60);
    attach(2, group, -60);
    assert_int_equal(links(), 7);
    double rate = capacity("wifi-direct", -60), latency = delay("wifi-direct", -60);
    expect(0, 1, latency, rate, 1);
    expect(0, 2, latency, rate, 1);
    expect(1, 2, 2 * latency, rate / 2, 1);
    media.network[group].hub = VTI_HUB_NONE;
    links();
    expect(1, 2, latency, rate, 1);
}

static void cables_share_nothing(void **state)
{
    (void)state;
    start(3);
    unsigned lan = network("ethernet-1000", VTI_HUB_OUTSIDE, 0);
    for (unsigned d = 0; d < 3; d++) attach(d, lan, 0);
    media.device[2].attachment[0].bytes_per_s = 11e6; /* an old port */
    assert_int_equal(links(), 7);
    expect(0, 1, 100e-6, 117.5e6, 0);
    expect(1, 2, 100e-6, 11e6, 0);
    /* Two phones on a laptop's USB ports reach each other through it. */
    start(3);
    unsigned usb = network("usb-2", 1, 0);
    for (unsigned d = 0; d < 3; d++) attach(d, usb, 0);
    links();
    expect(0, 1, 300e-6, 30e6, 0);
    expect(0, 2, 600e-6, 30e6, 0);
}

/* A router: its radio and its sockets. The phone reaches the desktop with airtime taken once. */
static void networks_of_one_site(void **state)
{
    (void)state;
    start(4);
    unsigned wifi = network("wifi-ac-80x2", VTI_HUB_OUTSIDE, 1);
    unsigned lan = network("ethernet-1000", VTI_HUB_OUTSIDE, 1);
    unsigned slow = network("wifi-n-20", VTI_HUB_OUTSIDE, 1);
    unsigned other = network("wifi-direct", VTI_HUB_NONE, 0);
    attach(0, wifi, -50);
    attach(1, lan, 0);
    attach(2, slow, -50);
    attach(3, other, -50);
    assert_int_equal(links(), 7);
    double fast_delay = delay("wifi-ac-80x2", -50), slow_delay = delay("wifi-n-20", -50);
    expect(0, 1, fast_delay + 100e-6, capacity("wifi-ac-80x2", -50), 1);
    expect(1, 2, slow_delay + 100e-6, capacity("wifi-n-20", -50), 3);
    expect(0, 2, fast_delay + slow_delay, capacity("wifi-n-20", -50), 3);
    for (unsigned d = 0; d < 3; d++) expect_none(3, d);
}

static void the_best_path_counts(void **state)
{
    (void)state;
    start(2);
    unsigned bluetooth = network("bluetooth", VTI_HUB_NONE, 0);
    unsigned direct = network("wifi-direct", 0, 0);
    for (unsigned d = 0; d < 2; d++) attach(d, bluetooth, -60), attach(d, direct, -60);
    links();
    expect(0, 1, delay("wifi-direct", -60), capacity("wifi-direct", -60), 2);
    media.device[1].attachment[1].rssi_dbm = -80; /* out of reach: Bluetooth is left */
    assert_int_equal(links(), 3);
    expect(0, 1, delay("bluetooth", -60), capacity("bluetooth", -60), 1);
    media.device[1].attachment[0].rssi_dbm = -95;
    assert_int_equal(links(), 1);
    expect_none(0, 1);
}

/* --- measurements ----------------------------------------------------------------------------- */

static void measure(unsigned device, double latency_s, double bytes_per_s)
{
    media.device[device].to_main =
        (vti_link_estimate){.latency_s = latency_s, .bytes_per_s = bytes_per_s, .transfers = 1};
}

static void only_measurements(void **state)
{
    (void)state;
    start(4);
    measure(1, 100e-6, 110e6);
    measure(2, 50e-6, 90e6);
    measure(3, 2e-3, 20e6);
    assert_int_equal(links(), 15);
    expect(0, 1, 100e-6, 110e6, 0);
    expect(1, 2, 100e-6, 90e6, 0);
    expect(0, 3, 2e-3, 20e6, 1); /* as slow to answer as a radio */
    expect(2, 3, 2e-3, 20e6, 1);
    measure(2, 0, 0);
    assert_int_equal(links(), 11);
    expect_none(0, 2);
    expect_none(1, 2);
}

/* Half as good as the medium promises to main: so are the links to the others. */
static void measurements_correct_the_media(void **state)
{
    (void)state;
    start(4);
    unsigned home = network("wifi-ac-80", VTI_HUB_OUTSIDE, 0), lan;
    for (unsigned d = 0; d < 4; d++) attach(d, home, -50);
    lan = network("ethernet-100", VTI_HUB_OUTSIDE, 0);
    attach(2, lan, 0);
    attach(3, lan, 0);
    links();
    vti_plan_link guess = cluster.link[0][1];
    measure(1, 2 * guess.latency_s, guess.bytes_per_s / 2);
    measure(2, 3 * guess.latency_s, guess.bytes_per_s / 4);
    assert_int_equal(links(), 15);
    expect(0, 1, 2 * guess.latency_s, guess.bytes_per_s / 2, 1);
    expect(1, 3, 2 * guess.latency_s, guess.bytes_per_s / 2, 1);
    expect(1, 2, 3 * guess.latency_s, guess.bytes_per_s / 4, 1);
    expect(0, 3, guess.latency_s, guess.bytes_per_s, 1);
    expect(2, 3, 150e-6, 11.75e6, 0); /* the cable between them is another medium */
}

/* --- descriptions ----------------------------------------------------------------------------- */

static void refuse(const char *reason, bool of_network, unsigned at)
{
    unsigned where = 99;
    bool is_network = !of_network;
    const char *wrong = vti_cluster_media_check(&media, &where, &is_network);
    assert_non_null(wrong);
    if (!strstr(wrong, reason)) fail_msg("%s", wrong);
    assert_int_equal(is_network, of_network);
    assert_int_equal(where, at);
}

static void sound(void)
{
    start(2);
    unsigned home = network("wifi-ac-80", VTI_HUB_OUTSIDE, 0);
    attach(0, home, -50);
    attach(1, home, -50);
    links();
}

static void wrong_descriptions_are_refused(void **state)
{
    (void)state;
    start(0);
    refuse("1 to 8 devices", false, 0);
    start(9);
    refuse("1 to 8 devices", false, 0);
    sound();
    media.networks = 9;
    refuse("at most 8 networks", true, 0);
    sound();
    media.network[0].medium = NULL;
    refuse("needs a medium", true, 0);
    sound();
    media.network[0].hub = 2;
    refuse("hub", true, 0);
    sound();
    network("usb-2", 1, 0);
    refuse("attached", true, 1);
    sound();
    media.device[1].attachments = 4;
    refuse("at most 3", false, 1);
    sound();
    media.device[1].attachment[0].network = 1;
    refuse("not there", false, 1);
    static const double signals[] = {1, NAN, -INFINITY};
    for (unsigned i = 0; i < 3; i++) {
        sound();
        media.device[1].attachment[0].rssi_dbm = signals[i];
        refuse("signal", false, 1);
    }
    static const double amounts[] = {-1, NAN, INFINITY};
    for (unsigned i = 0; i < 3; i++) {
        sound();
        media.device[1].attachment[0].latency_s = amounts[i];
        refuse("attachment", false, 1);
        sound();
        media.device[1].attachment[0].bytes_per_s = amounts[i];
        refuse("attachment", false, 1);
        sound();
        measure(1, amounts[i], 1);
        refuse("measured", false, 1);
        sound();
        measure(1, 1, amounts[i]);
        refuse("measured", false, 1);
    }
}

static void random_description(test_random *random)
{
    start(1 + test_random_u64(random) % 8);
    unsigned networks = test_random_u64(random) % 9;
    for (unsigned n = 0; n < networks; n++)
        network(vti_medium_at(test_random_u64(random) % 18)->name,
                test_random_u64(random) % 2 ? VTI_HUB_OUTSIDE : VTI_HUB_NONE,
                test_random_u64(random) % 3);
    for (unsigned d = 0; d < media.devices; d++) {
        unsigned count = networks ? test_random_u64(random) % 4 : 0;
        for (unsigned i = 0; i < count; i++)
            attach(d, test_random_u64(random) % networks, -(double)(test_random_u64(random) % 100));
    }
    for (unsigned n = 0; n < networks; n++) {
        unsigned d = test_random_u64(random) % media.devices;
        for (unsigned i = 0; i < media.device[d].attachments; i++)
            if (media.device[d].attachment[i].network == n) media.network[n].hub = d;
    }
}

/* Any sound description gives links that the planner accepts; more signal is never worse. */
static void any_description(void **state)
{
    (void)state;
    test_random random = {.state = 2718};
    for (int round = 0; round < 3000; round++) {
        random_description(&random);
        unsigned reached = links();
        for (unsigned d = 1; d < media.devices; d++) {
            bool there = cluster.link[0][d].latency_s < VTI_LINK_NONE_LATENCY_S;
            assert_int_equal(reached >> d & 1, there);
        }
        vti_plan_cluster before = cluster;
        vti_device_media *stronger = &media.device[test_random_u64(&random) % media.devices];
        for (unsigned i = 0; i < stronger->attachments; i++)
            stronger->attachment[i].rssi_dbm = fmin(stronger->attachment[i].rssi_dbm + 10, 0);
        assert_int_equal(links() & reached, reached);
        for (unsigned a = 0; a < media.devices; a++)
            for (unsigned b = 0; b < media.devices; b++) {
                const vti_plan_link *old = &before.link[a][b], *new = &cluster.link[a][b];
                assert_true(new->latency_s + 10240 / new->bytes_per_s <=
                            (old->latency_s + 10240 / old->bytes_per_s) * (1 + 1e-9));
            }
        for (unsigned d = 1; d < media.devices; d++)
            if (test_random_u64(&random) % 3 == 0)
                measure(d, test_random_float(&random, 0, 5e-3F),
                        test_random_float(&random, 1e3F, 1e9F));
        links();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(access_point_takes_airtime_twice),
        cmocka_unit_test(group_owner_relays),
        cmocka_unit_test(cables_share_nothing),
        cmocka_unit_test(networks_of_one_site),
        cmocka_unit_test(the_best_path_counts),
        cmocka_unit_test(only_measurements),
        cmocka_unit_test(measurements_correct_the_media),
        cmocka_unit_test(wrong_descriptions_are_refused),
        cmocka_unit_test(any_description),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
