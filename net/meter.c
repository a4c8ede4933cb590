#include "meter.h"

static double to_seconds(uint64_t ns) { return (double)ns * 1e-9; }

/* What may still be on its way delays nothing for long. */
static bool is_quiet(const vti_meter *meter)
{
    return meter->sent_bytes - meter->arrived_bytes <= VTI_METER_QUIET_BYTES;
}

void vti_meter_begin(vti_meter *meter, uint64_t now_ns, bool probes)
{
    if (meter->in_run) {
        meter->run_probes |= probes;
        return;
    }
    meter->in_run = true;
    meter->run_counts = is_quiet(meter);
    meter->run_ns = now_ns;
    meter->run_bytes = meter->sent_bytes;
    meter->run_answered = false;
    meter->run_probes = probes;
}

void vti_meter_end(vti_meter *meter) { meter->in_run = false; }

void vti_meter_sent(vti_meter *meter, uint64_t bytes) { meter->sent_bytes += bytes; }

/* Whether the run is worth to be measured at this point. */
static bool run_tells(const vti_meter *meter)
{
    uint64_t bytes = meter->sent_bytes - meter->run_bytes;
    uint64_t least = meter->run_probes ? 1 : VTI_METER_RUN_BYTES;
    return meter->in_run && meter->run_counts && bytes >= least;
}

bool vti_meter_wants_ping(const vti_meter *meter)
{
    if (meter->waiting || (meter->in_run && meter->run_probes)) return false;
    return meter->in_run ? run_tells(meter) : meter->again;
}

uint64_t vti_meter_ping(vti_meter *meter, uint64_t now_ns)
{
    meter->waiting = true;
    meter->ping++;
    meter->ping_ns = now_ns;
    meter->ping_bytes = meter->sent_bytes;
    meter->ping_marks = run_tells(meter);
    meter->ping_quiet = is_quiet(meter) && !meter->ping_marks;
    meter->again = false;
    meter->mark_ns = meter->run_ns;
    meter->mark_bytes = meter->run_bytes;
    meter->mark_answered = meter->run_answered;
    return meter->ping;
}

bool vti_meter_pong(vti_meter *meter, uint64_t number, uint64_t now_ns)
{
    if (!meter->waiting || number != meter->ping || now_ns < meter->ping_ns) return false;
    meter->waiting = false;
    meter->answers++;
    meter->arrived_bytes = meter->ping_bytes;
    if (meter->ping_quiet)
        vti_quality_add_rtt(&meter->quality, to_seconds(now_ns),
                            to_seconds(now_ns - meter->ping_ns));
    meter->again = !meter->ping_quiet && !meter->ping_marks;
    if (!meter->ping_marks) return true;
    vti_quality_add_transfer(&meter->quality, to_seconds(now_ns),
                             (double)(meter->ping_bytes - meter->mark_bytes),
                             to_seconds(now_ns - meter->mark_ns), meter->mark_answered ? 0 : 1);
    /* If the run goes on, the next measurement is from this answer to the next one. */
    if (meter->in_run && meter->run_bytes == meter->mark_bytes) {
        meter->run_ns = now_ns;
        meter->run_bytes = meter->ping_bytes;
        meter->run_answered = true;
        meter->run_probes = false;
    }
    return true;
}
