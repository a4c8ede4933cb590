#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_run.h"
#include "options.h"

void bench_run_print(const bench_run_report *r)
{
    printf("%s: %s, %.1f million parameters, %.1f MiB read per token, opened in %.1f s\n", r->model,
           r->info.architecture, (double)r->info.parameters * 1e-6,
           (double)r->weight_bytes_per_token / 1048576, r->load_seconds);
    printf("%s, %u threads, KV cache %s\n\n", r->cpu, r->threads, r->kv);
    printf("%8s %28s %28s %8s %15s\n", "context", "prefill tok/s (min … max)",
           "  decode tok/s (min … max)", "GB/s", "of bandwidth");
    for (uint32_t i = 0; i < r->place_count; i++) {
        const bench_place *p = &r->places[i];
        char prefill[64], decode[64];
        snprintf(prefill, sizeof prefill, "%.1f (%.1f … %.1f)", p->prefill_median, p->prefill[0],
                 p->prefill[r->repeats - 1]);
        snprintf(decode, sizeof decode, "%.2f (%.2f … %.2f)", p->decode_median, p->decode[0],
                 p->decode[r->repeats - 1]);
        /* The ellipsis has three bytes and one column. */
        printf("%8u %30s %30s %8.2f %6.2f = %4.1f %%\n", p->context, prefill, decode,
               p->bytes_per_second * 1e-9, p->bandwidth_median * 1e-9, p->percent);
    }
    printf("\n%u repeats of %u tokens; logits %016" PRIx64 "\n", r->repeats, r->decode_tokens,
           r->logits_hash);
}

/* In quotes, as a path may have commas. */
static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

void bench_run_print_csv(const bench_run_report *r)
{
    printf("model,threads,kv,context,decode_tokens,repeats,prefill_tok_s,prefill_min,prefill_max,"
           "decode_tok_s,decode_min,decode_max,gb_s,bandwidth_gb_s,percent,logits_hash\n");
    for (uint32_t i = 0; i < r->place_count; i++) {
        const bench_place *p = &r->places[i];
        print_quoted(r->model);
        printf(",%u,%s,%u,%u,%u,%.2f,%.2f,%.2f,%.3f,%.3f,%.3f,%.3f,%.3f,%.1f,%016" PRIx64 "\n",
               r->threads, r->kv, p->context, r->decode_tokens, r->repeats, p->prefill_median,
               p->prefill[0], p->prefill[r->repeats - 1], p->decode_median, p->decode[0],
               p->decode[r->repeats - 1], p->bytes_per_second * 1e-9,
               p->bandwidth_median * 1e-9, p->percent, r->logits_hash);
    }
}

static json_t *series(double median, const double *sorted, uint32_t count)
{
    return json_pack("{s:f, s:f, s:f}", "median", median, "min", sorted[0], "max",
                     sorted[count - 1]);
}

static json_t *place_object(const bench_run_report *r, const bench_place *p)
{
    return json_pack("{s:I, s:o, s:o, s:f, s:f, s:f}", "context", (json_int_t)p->context,
                     "prefill_tok_s", series(p->prefill_median, p->prefill, r->repeats),
                     "decode_tok_s", series(p->decode_median, p->decode, r->repeats), "gb_s",
                     p->bytes_per_second * 1e-9, "bandwidth_gb_s", p->bandwidth_median * 1e-9,
                     "percent", p->percent);
}

static json_t *report_object(const bench_run_report *r)
{
    char hash[17];
    json_t *places = json_array();
    snprintf(hash, sizeof hash, "%016" PRIx64, r->logits_hash);
    for (uint32_t i = 0; places && i < r->place_count; i++)
        if (json_array_append_new(places, place_object(r, &r->places[i])) != 0) return NULL;
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:I, s:s, s:I, s:I, s:f, s:s, s:o}",
                     "model", r->model, "architecture", r->info.architecture, "name", r->info.name,
                     "parameters", (json_int_t)r->info.parameters, "weight_bytes_per_token",
                     (json_int_t)r->weight_bytes_per_token, "cpu", r->cpu, "threads",
                     (json_int_t)r->threads, "kv", r->kv, "decode_tokens",
                     (json_int_t)r->decode_tokens, "repeats", (json_int_t)r->repeats,
                     "load_seconds", r->load_seconds, "logits_hash", hash, "results", places);
}

int bench_run_print_json(const bench_run_report *r)
{
    json_t *object = report_object(r);
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(object);
    if (!text) return bench_error(VT_ERR_INTERNAL, "no JSON: a name is not UTF-8");
    puts(text);
    free(text);
    return VT_OK;
}
