/* What media can do at a signal, against the tables of the standard, and the estimate of a link in
 * virtual time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../net/quality.h"
#include "support.h"

/* --- media ------------------------------------------------------------------------------------ */

/* Minimum sensitivity per scheme and channel (dBm), rates with the long guard interval and one
 * stream (Mbit/s): the tables that docs/links.md names. */
static const struct {
    double rssi[3], mbit[3];
} standard[] = {
    {{-82, -79, -76}, {6.5, 13.5, 29.3}},   {{-79, -76, -73}, {13, 27, 58.5}},
    {{-77, -74, -71}, {19.5, 40.5, 87.8}},  {{-74, -71, -68}, {26, 54, 117}},
    {{-70, -67, -64}, {39, 81, 175.5}},     {{-66, -63, -60}, {52, 108, 234}},
    {{-65, -62, -59}, {58.5, 121.5, 263.3}}, {{-64, -61, -58}, {65, 135, 292.5}},
    {{-59, -56, -53}, {78, 162, 351}},      {{-57, -54, -51}, {0, 180, 390}},
};

static void ladder_is_the_standards(const char *name, unsigned channel, unsigned streams,
                                    unsigned schemes)
{
    vti_medium_rung rung[VTI_MEDIUM_RUNGS_MAX];
    const vti_medium *medium = vti_medium_find(name);
    assert_non_null(medium);
    assert_int_equal(vti_medium_ladder(medium, rung), schemes);
    for (unsigned i = 0; i < schemes; i++) {
        assert_true(rung[i].rssi_dbm == standard[i].rssi[channel]);
        double mbit = standard[i].mbit[channel] * streams;
        if (fabs(rung[i].bits_per_s / 1e6 - mbit) > 0.05 * streams + 1e-9)
            fail_msg("%s, scheme %u: %g", name, i, rung[i].bits_per_s);
    }
}

static void wifi_ladders(void **state)
{
    (void)state;
    ladder_is_the_standards("wifi-n-20", 0, 1, 8);
    ladder_is_the_standards("wifi-n-20x2", 0, 2, 8);
    ladder_is_the_standards("wifi-n-40", 1, 1, 8);
    ladder_is_the_standards("wifi-n-40x2", 1, 2, 8);
    ladder_is_the_standards("wifi-ac-20", 0, 1, 9);
    ladder_is_the_standards("wifi-ac-20x2", 0, 2, 9);
    ladder_is_the_standards("wifi-ac-40", 1, 1, 10);
    ladder_is_the_standards("wifi-ac-40x2", 1, 2, 10);
    ladder_is_the_standards("wifi-ac-80", 2, 1, 10);
    ladder_is_the_standards("wifi-ac-80x2", 2, 2, 10);
    ladder_is_the_standards("wifi-direct", 2, 1, 10);
}

static void every_medium_has_its_name(void **state)
{
    (void)state;
    size_t count = 0;
    for (const vti_medium *m; (m = vti_medium_at(count)); count++)
        assert_ptr_equal(vti_medium_find(m->name), m);
    assert_int_equal(count, 18);
    assert_null(vti_medium_find("wifi"));
    assert_null(vti_medium_find(""));
}

static void more_signal_is_never_worse(void **state)
{
    (void)state;
    const vti_medium *m;
    for (size_t i = 0; (m = vti_medium_at(i)); i++) {
        double bandwidth = 0, latency = HUGE_VAL;
        for (double rssi = -127; rssi <= 0; rssi += 0.25) {
            double b = vti_medium_bytes_per_s(m, rssi), l = vti_medium_latency_s(m, rssi);
            assert_true(isfinite(b) && b >= bandwidth);
            assert_true(isfinite(l) && l <= latency && l >= m->latency_s);
            assert_int_equal(b == 0, vti_medium_is_lost(m, rssi));
            bandwidth = b, latency = l;
        }
        assert_true(latency == m->latency_s); /* 0 dBm: not known, taken for a good one */
        if (m->radio)
            assert_true(vti_medium_is_lost(m, -100));
        else
            assert_true(bandwidth == vti_medium_bytes_per_s(m, -100));
    }
}

/* Goodput is what vendors say that one can expect: about half of the rate, 94 % on a cable. */
static void known_figures(void **state)
{
    (void)state;
    const vti_medium *wifi = vti_medium_find("wifi-ac-80");
    assert_true(vti_medium_bytes_per_s(vti_medium_find("ethernet-1000"), 0) == 117.5e6);
    assert_float_equal(vti_medium_bytes_per_s(wifi, 0), 390e6 / 2 / 8, 1);
    /* At the very last rung e tries are needed on average; 10 dB above, 1.1. */
    assert_float_equal(vti_medium_bytes_per_s(wifi, -76), 29.25e6 / 2 / 8 / exp(1), 1);
    assert_float_equal(vti_medium_bytes_per_s(wifi, -66), 117e6 / 2 / 8 / exp(0.1), 1);
    assert_true(vti_medium_latency_s(wifi, -66) < 1.2 * wifi->latency_s);
    assert_true(vti_medium_latency_s(wifi, -76) > 5 * wifi->latency_s);
}

/* --- estimates -------------------------------------------------------------------------------- */

static double unit(test_random *random) { return (double)test_random_u64(random) * 0x1p-64; }

static vti_link_estimate estimate(const vti_quality *quality)
{
    vti_link_estimate e;
    vti_quality_estimate(quality, &e);
    return e;
}

static void assert_near(double x, double wanted, double factor)
{
    if (!(x <= wanted * factor && x * factor >= wanted)) fail_msg("%g, not %g", x, wanted);
}

static void nothing_is_known_at_first(void **state)
{
    (void)state;
    vti_quality q;
    vti_link_estimate e;
    vti_quality_init(&q, NULL, VTI_RSSI_UNKNOWN);
    assert_false(vti_quality_estimate(&q, &e));
    assert_true(e.latency_s == 0 && e.bytes_per_s == 0);
    vti_quality_add_rtt(&q, 1, 4e-3);
    assert_false(vti_quality_estimate(&q, &e));
    vti_quality_add_transfer(&q, 2, 1e6, 0.104, 1);
    assert_true(vti_quality_estimate(&q, &e));
    assert_near(e.latency_s, 2e-3, 1.0001);
    assert_near(e.bytes_per_s, 10e6, 1.0001);
    assert_int_equal(e.rtts, 1);
    assert_int_equal(e.transfers, 1);
}

/* Jitter of a third, and a device that is computing: 6 of 10 answers are late by up to 62 ms. */
static void late_answers_do_no_harm(void **state)
{
    (void)state;
    test_random random = {.state = 4711};
    vti_quality q;
    vti_quality_init(&q, NULL, VTI_RSSI_UNKNOWN);
    double worst = 1;
    for (int i = 0; i < 2000; i++) {
        double rtt = 2e-3 * (1 + unit(&random) / 3);
        if (unit(&random) < 0.6) rtt += 62e-3 * unit(&random);
        vti_quality_add_rtt(&q, i, rtt);
        double off = estimate(&q).latency_s / 1.1e-3;
        if (i > 50) worst = fmax(worst, fmax(off, 1 / off));
    }
    printf("latency is off by a factor of %.2f at worst\n", worst);
    assert_true(worst < 3);
    assert_near(estimate(&q).latency_s, 1.1e-3, 1.3);
}

static void changes_are_followed(void **state)
{
    (void)state;
    vti_quality q;
    vti_quality_init(&q, NULL, VTI_RSSI_UNKNOWN);
    double now = 0;
    for (int i = 0; i < 20; i++, now++) {
        vti_quality_add_rtt(&q, now, 1e-3);
        vti_quality_add_transfer(&q, now, 1e6, 1e6 / 40e6 + 1e-3, 1);
    }
    assert_near(estimate(&q).latency_s, 0.5e-3, 1.001);
    assert_near(estimate(&q).bytes_per_s, 40e6, 1.01);
    for (int i = 0; i < 30; i++, now++) {
        vti_quality_add_rtt(&q, now, 10e-3);
        vti_quality_add_transfer(&q, now, 1e6, 1e6 / 4e6, 0);
    }
    assert_near(estimate(&q).latency_s, 5e-3, 1.05);
    assert_near(estimate(&q).bytes_per_s, 4e6, 1.1);
    /* After a long silence what is new counts at once. */
    now += 600;
    vti_quality_add_rtt(&q, now, 2e-3);
    assert_near(estimate(&q).latency_s, 1e-3, 1.001);
    for (int i = 0; i < 4; i++, now += 120) vti_quality_add_transfer(&q, now, 1e6, 1e6 / 16e6, 0);
    assert_near(estimate(&q).bytes_per_s, 16e6, 1.1);
}

static void one_outlier_changes_little(void **state)
{
    (void)state;
    for (double factor = 1e-6; factor < 1e7; factor *= 100) {
        vti_quality q;
        vti_quality_init(&q, NULL, VTI_RSSI_UNKNOWN);
        for (int i = 0; i < 20; i++) {
            vti_quality_add_rtt(&q, i, 2e-3);
            vti_quality_add_transfer(&q, i, 1e6, 0.1, 0);
        }
        vti_quality_add_rtt(&q, 20, 2e-3 * factor);
        vti_quality_add_transfer(&q, 20, 1e6, 0.1 / factor, 0);
        assert_near(estimate(&q).latency_s, 1e-3, 1.001);
        assert_near(estimate(&q).bytes_per_s, 10e6, 1.42);
    }
}

/* 4 KB in 2 ms at a round trip of 2 ms: that says nothing about 10 MB/s, but 1 MB in 4 ms does. */
static void small_transfers_are_lower_bounds(void **state)
{
    (void)state;
    vti_quality q;
    vti_quality_init(&q, NULL, VTI_RSSI_UNKNOWN);
    vti_quality_add_rtt(&q, 0, 2e-3);
    vti_quality_add_transfer(&q, 0, 4096, 2e-3, 1);
    assert_int_equal(estimate(&q).transfers, 0);
    vti_quality_add_transfer(&q, 1, 1e6, 0.102, 1);
    for (int i = 2; i < 100; i++) {
        vti_quality_add_transfer(&q, i, 4096, 2.1e-3, 1);
        vti_quality_add_transfer(&q, i, 20000, 2.1e-3, 1);
    }
    assert_near(estimate(&q).bytes_per_s, 10e6, 1.0001);
    for (int i = 100; i < 140; i++) vti_quality_add_transfer(&q, i, 100e3, 2.2e-3, 1);
    assert_true(estimate(&q).bytes_per_s > 40e6);
}

static void measurements_outweigh_the_guess(void **state)
{
    (void)state;
    const vti_medium *medium = vti_medium_find("wifi-ac-80");
    double guess = vti_medium_bytes_per_s(medium, -50), truth = guess / 3, last = guess;
    vti_quality q;
    vti_quality_init(&q, medium, -50);
    assert_true(estimate(&q).bytes_per_s == guess);
    assert_true(estimate(&q).latency_s == vti_medium_latency_s(medium, -50));
    for (int i = 0; i < 10; i++) {
        vti_quality_add_rtt(&q, i, 10 * medium->latency_s);
        vti_quality_add_transfer(&q, i, 1e6, 1e6 / truth, 0);
        assert_true(estimate(&q).bytes_per_s < last && estimate(&q).bytes_per_s > truth);
        last = estimate(&q).bytes_per_s;
    }
    assert_near(last, truth, 1.1);
    assert_near(estimate(&q).latency_s, 5 * medium->latency_s, 1.15);
}

/* --- signals ---------------------------------------------------------------------------------- */

static void a_new_signal_scales_what_was_measured(void **state)
{
    (void)state;
    const vti_medium *medium = vti_medium_find("wifi-direct");
    vti_quality q;
    vti_quality_init(&q, medium, -50);
    for (int i = 0; i < 50; i++) vti_quality_add_transfer(&q, i, 1e6, 1e6 / 10e6, 0);
    vti_link_estimate before = estimate(&q);
    vti_quality_set_rssi(&q, 100, -70);
    vti_link_estimate after = estimate(&q);
    assert_near(after.bytes_per_s / before.bytes_per_s,
                vti_medium_bytes_per_s(medium, -70) / vti_medium_bytes_per_s(medium, -50), 1.0001);
    assert_true(after.latency_s > before.latency_s);
    /* Readings jump about: each counts half. */
    vti_quality_set_rssi(&q, 100, -60);
    assert_float_equal(estimate(&q).rssi_dbm, -65, 1e-6);
    /* To learn the signal changes nothing that was measured. */
    vti_quality_init(&q, medium, VTI_RSSI_UNKNOWN);
    for (int i = 0; i < 50; i++) {
        vti_quality_add_rtt(&q, i, 5e-3);
        vti_quality_add_transfer(&q, i, 1e6, 1e6 / 10e6, 0);
    }
    before = estimate(&q);
    vti_quality_set_rssi(&q, 50, -65);
    assert_near(estimate(&q).bytes_per_s, before.bytes_per_s, 1.02);
    assert_near(estimate(&q).latency_s, before.latency_s, 1.02);
}

static void below_the_last_rung_it_is_lost(void **state)
{
    (void)state;
    vti_quality q;
    vti_quality_init(&q, vti_medium_find("wifi-n-20"), -83);
    assert_true(estimate(&q).bytes_per_s == 0);
    vti_quality_set_rssi(&q, 10, -60);
    assert_true(estimate(&q).bytes_per_s > 0);
    vti_quality_add_rtt(&q, 19.5, 5e-3);
    vti_quality_set_rssi(&q, 20, -90);
    assert_true(estimate(&q).bytes_per_s > 0); /* it just answered */
    vti_quality_set_rssi(&q, 30, -90);
    assert_true(estimate(&q).bytes_per_s == 0);
    assert_true(isfinite(estimate(&q).latency_s));
    vti_quality_add_rtt(&q, 31, 50e-3);
    assert_true(estimate(&q).bytes_per_s > 0); /* the receiver is better than it has to be */
}

static const double odd_values[] = {NAN, INFINITY, -INFINITY, -1, 0, 1e-320, 1e-9, 1e300, -1e300,
                                    1e9, 0x1p-30};

static double any_value(test_random *random, double usual)
{
    uint64_t kind = test_random_u64(random) % 20;
    if (kind < sizeof odd_values / sizeof *odd_values) return odd_values[kind];
    return usual * exp(6 * unit(random) - 3);
}

/* Whatever is fed: estimates are finite and positive (or the link is lost), and more signal is
 * never worse. */
static void no_input_breaks_an_estimate(void **state)
{
    (void)state;
    test_random random = {.state = 99};
    for (int round = 0; round < 400; round++) {
        vti_quality q;
        vti_quality_init(&q, vti_medium_at(test_random_u64(&random) % 19), /* 18: none */
                         any_value(&random, -60));
        for (int i = 0; i < 50; i++) {
            double now = any_value(&random, i);
            switch (test_random_u64(&random) % 3) {
            case 0: vti_quality_add_rtt(&q, now, any_value(&random, 3e-3)); break;
            case 1: vti_quality_set_rssi(&q, now, any_value(&random, -60)); break;
            default:
                vti_quality_add_transfer(&q, now, any_value(&random, 1e6),
                                         any_value(&random, 0.1), test_random_u64(&random) & 1);
            }
            vti_link_estimate e = estimate(&q);
            assert_true(isfinite(e.latency_s) && e.latency_s >= 0);
            assert_true(isfinite(e.bytes_per_s) && e.bytes_per_s >= 0);
            if (e.transfers > 0 && q.medium == NULL) assert_true(e.bytes_per_s > 0);
        }
        double bandwidth = 0;
        for (double rssi = -100; rssi < 0; rssi++) {
            vti_quality with = q;
            with.rssi_dbm = rssi;
            assert_true(estimate(&with).bytes_per_s >= bandwidth);
            bandwidth = estimate(&with).bytes_per_s;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wifi_ladders),
        cmocka_unit_test(every_medium_has_its_name),
        cmocka_unit_test(more_signal_is_never_worse),
        cmocka_unit_test(known_figures),
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(late_answers_do_no_harm),
        cmocka_unit_test(changes_are_followed),
        cmocka_unit_test(one_outlier_changes_little),
        cmocka_unit_test(small_transfers_are_lower_bounds),
        cmocka_unit_test(measurements_outweigh_the_guess),
        cmocka_unit_test(a_new_signal_scales_what_was_measured),
        cmocka_unit_test(below_the_last_rung_it_is_lost),
        cmocka_unit_test(no_input_breaks_an_estimate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
