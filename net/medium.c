#include "medium.h"

#include <math.h>
#include <string.h>

/* A Wi-Fi link of 802.11n (8 schemes) or 802.11ac (10; 9 in channels of 20 MHz). */
#define WIFI(title, subcarriers_, streams_, schemes_)                                              \
    { .name = (title), .radio = true, .latency_s = 1.5e-3, .efficiency = 0.5,                      \
      .subcarriers = (subcarriers_), .streams = (streams_), .schemes = (schemes_) }

enum { MHZ_20 = 52, MHZ_40 = 108, MHZ_80 = 234 }; /* data subcarriers */

static const vti_medium media[] = {
    {.name = "loopback", .latency_s = 10e-6, .efficiency = 0.9, .bits_per_s = 8e9},
    {.name = "ethernet-100", .latency_s = 150e-6, .efficiency = 0.94, .bits_per_s = 100e6},
    {.name = "ethernet-1000", .latency_s = 100e-6, .efficiency = 0.94, .bits_per_s = 1e9},
    {.name = "usb-2", .latency_s = 300e-6, .efficiency = 0.5, .bits_per_s = 480e6},
    {.name = "usb-3", .latency_s = 200e-6, .efficiency = 0.4, .bits_per_s = 5e9},
    WIFI("wifi-n-20", MHZ_20, 1, 8),
    WIFI("wifi-n-20x2", MHZ_20, 2, 8),
    WIFI("wifi-n-40", MHZ_40, 1, 8),
    WIFI("wifi-n-40x2", MHZ_40, 2, 8),
    WIFI("wifi-ac-20", MHZ_20, 1, 9),
    WIFI("wifi-ac-20x2", MHZ_20, 2, 9),
    WIFI("wifi-ac-40", MHZ_40, 1, 10),
    WIFI("wifi-ac-40x2", MHZ_40, 2, 10),
    WIFI("wifi-ac-80", MHZ_80, 1, 10),
    WIFI("wifi-ac-80x2", MHZ_80, 2, 10),
    WIFI("wifi-direct", MHZ_80, 1, 10),
    {.name = "bluetooth", .radio = true, .latency_s = 10e-3, .efficiency = 0.65, .bits_per_s = 3e6,
     .rung = {{-90, 2e6}, {-87, 3e6}}},
    {.name = "bluetooth-le", .radio = true, .latency_s = 7.5e-3, .efficiency = 0.6,
     .bits_per_s = 2e6, .rung = {{-94, 1e6}, {-89, 2e6}}},
};

static const size_t media_count = sizeof media / sizeof media[0];

const vti_medium *vti_medium_at(size_t number)
{
    return number < media_count ? &media[number] : NULL;
}

const vti_medium *vti_medium_find(const char *name)
{
    for (size_t i = 0; i < media_count; i++)
        if (strcmp(media[i].name, name) == 0) return &media[i];
    return NULL;
}

/* The least signal in 20 MHz at which the standard wants a scheme to work, and the data bits that
 * it has per subcarrier and symbol. Twice the channel needs twice the signal: 3 dB. */
static const vti_medium_rung scheme[VTI_MEDIUM_RUNGS_MAX] = {
    {-82, 0.5}, {-79, 1}, {-77, 1.5}, {-74, 2},   {-70, 3},
    {-66, 4},   {-65, 4.5}, {-64, 5}, {-59, 6},   {-57, 20.0 / 3},
};

#define SYMBOLS_PER_S 250e3 /* 3.2 µs and the long guard interval of 0.8 µs */

unsigned vti_medium_ladder(const vti_medium *medium, vti_medium_rung rung[VTI_MEDIUM_RUNGS_MAX])
{
    if (!medium->radio) return 0;
    if (medium->schemes == 0) {
        memcpy(rung, medium->rung, sizeof medium->rung);
        return 2;
    }
    double wider_db = medium->subcarriers == MHZ_80 ? 6 : medium->subcarriers == MHZ_40 ? 3 : 0;
    for (unsigned i = 0; i < medium->schemes; i++) {
        rung[i].rssi_dbm = scheme[i].rssi_dbm + wider_db;
        rung[i].bits_per_s =
            scheme[i].bits_per_s * SYMBOLS_PER_S * medium->subcarriers * medium->streams;
    }
    return medium->schemes;
}

static bool is_known(double rssi_dbm) { return rssi_dbm < VTI_RSSI_UNKNOWN; }

/* How much more signal there is than the last rung needs; not below 0. */
static double margin_db(const vti_medium *medium, double rssi_dbm)
{
    vti_medium_rung rung[VTI_MEDIUM_RUNGS_MAX];
    if (vti_medium_ladder(medium, rung) == 0 || !is_known(rssi_dbm)) return HUGE_VAL;
    return rssi_dbm > rung[0].rssi_dbm ? rssi_dbm - rung[0].rssi_dbm : 0;
}

bool vti_medium_is_lost(const vti_medium *medium, double rssi_dbm)
{
    vti_medium_rung rung[VTI_MEDIUM_RUNGS_MAX];
    return is_known(rssi_dbm) && vti_medium_ladder(medium, rung) > 0 && rssi_dbm < rung[0].rssi_dbm;
}

static double rate(const vti_medium *medium, double rssi_dbm)
{
    vti_medium_rung rung[VTI_MEDIUM_RUNGS_MAX];
    unsigned count = vti_medium_ladder(medium, rung);
    if (count == 0) return medium->bits_per_s;
    if (!is_known(rssi_dbm)) return rung[count - 1].bits_per_s;
    while (count > 0 && rssi_dbm < rung[count - 1].rssi_dbm) count--;
    return count > 0 ? rung[count - 1].bits_per_s : 0;
}

/* The signal fades (Rayleigh): its power is below a fraction f of its mean with the probability
 * 1 - exp(-f). As long as it is below the last rung, tries are in vain. */
static double fading(const vti_medium *medium, double rssi_dbm)
{
    return pow(10, -margin_db(medium, rssi_dbm) / 10);
}

static double tries(const vti_medium *medium, double rssi_dbm)
{
    return exp(fading(medium, rssi_dbm));
}

double vti_medium_bytes_per_s(const vti_medium *medium, double rssi_dbm)
{
    double best = rate(medium, rssi_dbm) * medium->efficiency / 8;
    return best > 0 ? best / tries(medium, rssi_dbm) : 0;
}

#define TRIES_MAX 7      /* of a frame, then it is dropped */
#define RESEND_AFTER_S 0.2 /* by TCP, at the earliest */

double vti_medium_latency_s(const vti_medium *medium, double rssi_dbm)
{
    double dropped = pow(1 - exp(-fading(medium, rssi_dbm)), TRIES_MAX);
    return medium->latency_s * tries(medium, rssi_dbm) + dropped * RESEND_AFTER_S;
}
