#include "quality.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* A new value counts for a quarter, or for more if the last one is old. */
#define WEIGHT 0.25
#define RTT_FADES_S 10.0
#define TRANSFER_FADES_S 30.0
#define RSSI_WEIGHT 0.5
#define RSSI_FADES_S 1.0

#define RTT_KEPT_S 60.0      /* then a sample says nothing any more */
#define RTT_LEAST_S 1e-7     /* what is less, or more, is taken as this */
#define RTT_MOST_S 1e3
#define RATE_LEAST 1.0       /* bytes per second, likewise */
#define RATE_MOST 1e12
#define TRANSFER_LEAST_BYTES 16384.0 /* to say anything, */
#define TRANSFER_LEAST_S 10e-3       /* unless it took so long */
#define OUTLIER_UP 4.0       /* one transfer changes the average as if it were at most so much */
#define OUTLIER_DOWN 0.5     /* faster and slower: late answers look like slow transfers */
#define FEW 4 /* until there are so many, what is faster is believed: a device that was busy looks */
#define FEW_WEIGHT 0.75 /* slow, but none looks fast */
#define GUESS_COUNTS 0.5     /* the medium's values count as half a measurement */
#define SILENCE_S 3.0        /* without a measurement, a signal that is too weak is believed */
#define RSSI_LEAST_DBM (-127.0)

static bool is_positive(double x) { return isfinite(x) && x > 0; }

/* The first measurements may come at any time; what goes back does not count as old. */
static double weight(double least, unsigned count, double passed_s, double fades_s)
{
    if (count == 0) return 1;
    double old = passed_s > 0 ? 1 - exp(-passed_s / fades_s) : 0;
    return old > least ? old : least;
}

static double between(double low, double x, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* Averages of ratios are geometric: twice and half cancel out. */
static double average(double old, double new, double w)
{
    return w < 1 ? exp(log(old) * (1 - w) + log(new) * w) : new;
}

/* What is measured at this signal is compared with. Where the ladder says that the link is lost,
 * it is the last rung. */
static double usual_bandwidth(const vti_quality *quality, double rssi_dbm)
{
    const vti_medium *medium = quality->medium;
    if (!medium) return 1;
    vti_medium_rung rung[VTI_MEDIUM_RUNGS_MAX];
    if (vti_medium_is_lost(medium, rssi_dbm) && vti_medium_ladder(medium, rung) > 0)
        rssi_dbm = rung[0].rssi_dbm;
    return vti_medium_bytes_per_s(medium, rssi_dbm);
}

static double usual_latency(const vti_quality *quality, double rssi_dbm)
{
    return quality->medium ? vti_medium_latency_s(quality->medium, rssi_dbm) : 1;
}

void vti_quality_init(vti_quality *quality, const vti_medium *medium, double rssi_dbm)
{
    *quality = (vti_quality){.medium = medium, .latency_ratio = 1, .bandwidth_ratio = 1};
    vti_quality_set_rssi(quality, 0, rssi_dbm);
    quality->rssi_time_s = -HUGE_VAL;
    quality->heard_time_s = -HUGE_VAL;
}

void vti_quality_set_rssi(vti_quality *quality, double now_s, double rssi_dbm)
{
    if (!isfinite(rssi_dbm) || rssi_dbm > VTI_RSSI_UNKNOWN || rssi_dbm < RSSI_LEAST_DBM) return;
    double before = quality->rssi_dbm;
    bool was_known = before != VTI_RSSI_UNKNOWN, is_known = rssi_dbm != VTI_RSSI_UNKNOWN;
    if (was_known && is_known) {
        double w = weight(RSSI_WEIGHT, 1, now_s - quality->rssi_time_s, RSSI_FADES_S);
        quality->rssi_dbm += (rssi_dbm - before) * w;
    } else {
        /* Knowing more does not change what was measured. */
        quality->rssi_dbm = rssi_dbm;
        if (quality->rtts > 0)
            quality->latency_ratio *=
                usual_latency(quality, before) / usual_latency(quality, rssi_dbm);
        if (quality->transfers > 0)
            quality->bandwidth_ratio *=
                usual_bandwidth(quality, before) / usual_bandwidth(quality, rssi_dbm);
    }
    quality->rssi_time_s = now_s;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* An answer may be late, never early: of 16, the second. */
static double prompt_rtt(const vti_quality *quality, double now_s)
{
    double sorted[VTI_QUALITY_RTTS];
    unsigned count = 0;
    for (unsigned i = 0; i < VTI_QUALITY_RTTS && i < quality->rtts; i++)
        if (now_s - quality->sample_time_s[i] <= RTT_KEPT_S) sorted[count++] = quality->sample_s[i];
    qsort(sorted, count, sizeof *sorted, ascending);
    return sorted[(count - 1) / 8];
}

void vti_quality_add_rtt(vti_quality *quality, double now_s, double rtt_s)
{
    if (!isfinite(now_s) || !isfinite(rtt_s) || rtt_s < 0) return;
    unsigned slot = quality->rtts % VTI_QUALITY_RTTS;
    quality->sample_s[slot] = between(RTT_LEAST_S, rtt_s, RTT_MOST_S);
    quality->sample_time_s[slot] = now_s;
    bool few = quality->rtts < VTI_QUALITY_RTTS; /* an average would keep what came late */
    double w = few ? 1 : weight(WEIGHT, 1, now_s - quality->rtt_time_s, RTT_FADES_S);
    if (quality->rtts < UINT_MAX) quality->rtts++;
    double latency_s = prompt_rtt(quality, now_s) / 2;
    double ratio = latency_s / usual_latency(quality, quality->rssi_dbm);
    quality->latency_ratio = average(quality->latency_ratio, ratio, w);
    quality->rtt_time_s = quality->heard_time_s = now_s;
}

/* How much the measurements count against what the medium promises. */
static double measured_weight(const vti_quality *quality, unsigned count)
{
    return quality->medium ? count / (count + GUESS_COUNTS) : 1;
}

static double latency(const vti_quality *quality)
{
    if (!quality->medium && quality->rtts == 0) return 0;
    return usual_latency(quality, quality->rssi_dbm) *
           pow(quality->latency_ratio, measured_weight(quality, quality->rtts));
}

void vti_quality_add_transfer(vti_quality *quality, double now_s, double bytes, double seconds,
                              unsigned round_trips)
{
    if (!isfinite(now_s) || !is_positive(bytes) || !is_positive(seconds)) return;
    quality->heard_time_s = now_s;
    double waiting_s = round_trips > 0 ? 2 * latency(quality) : 0;
    double sending_s = seconds - waiting_s;
    double usual = usual_bandwidth(quality, quality->rssi_dbm);
    bool long_enough = bytes >= TRANSFER_LEAST_BYTES || sending_s >= TRANSFER_LEAST_S;
    bool tells = long_enough && sending_s > waiting_s / 4;
    double rate = between(RATE_LEAST, bytes / (tells ? sending_s : seconds), RATE_MOST);
    double ratio = rate / usual, known = quality->bandwidth_ratio;
    if (!tells && (quality->transfers > 0 ? ratio <= known : !long_enough)) return;
    double share = fmax(WEIGHT, bytes / (bytes + quality->transfer_bytes));
    if (quality->transfers >= FEW)
        ratio = between(known * OUTLIER_DOWN, ratio, known * OUTLIER_UP);
    else if (quality->transfers > 0 && ratio < known)
        ratio = fmax(known * OUTLIER_DOWN, ratio);
    else
        share = fmax(share, FEW_WEIGHT);
    double w = weight(share, quality->transfers, now_s - quality->transfer_time_s,
                      TRANSFER_FADES_S);
    quality->transfer_bytes = quality->transfer_bytes * (1 - WEIGHT) + bytes;
    quality->bandwidth_ratio = average(known, ratio, w);
    quality->transfer_time_s = now_s;
    if (quality->transfers < UINT_MAX) quality->transfers++;
}

static bool is_lost(const vti_quality *quality)
{
    return quality->medium && vti_medium_is_lost(quality->medium, quality->rssi_dbm) &&
           !(quality->heard_time_s > quality->rssi_time_s - SILENCE_S);
}

bool vti_quality_estimate(const vti_quality *quality, vti_link_estimate *out)
{
    *out = (vti_link_estimate){.latency_s = latency(quality), .rssi_dbm = quality->rssi_dbm,
                               .rtts = quality->rtts, .transfers = quality->transfers};
    if (!is_lost(quality) && (quality->medium || quality->transfers > 0))
        out->bytes_per_s = usual_bandwidth(quality, quality->rssi_dbm) *
                           pow(quality->bandwidth_ratio,
                               measured_weight(quality, quality->transfers));
    return quality->medium || (quality->rtts > 0 && quality->transfers > 0);
}
