/* sampling.c: sampling options that are more than one number. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int bad_bias(const char *text)
{
    return cli_error(CLI_USAGE,
                     "--logit-bias: \"%s\" is not right, expected ID:X,ID:X,… with the number of a "
                     "token and what to add to its logit, such as 17:-2.5 or 17:-inf",
                     text);
}

/* Counts the biases of "ID:X,ID:X" and, unless `out` is NULL, writes them. */
static int parse_biases(const char *text, vt_logit_bias *out, size_t *count)
{
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || *end != ':' || errno || id > INT_MAX) return bad_bias(text);
        at = end + 1;
        float bias = strtof(at, &end);
        if (end == at || isnan(bias) || (*end && *end != ',')) return bad_bias(text);
        if (out) out[*count] = (vt_logit_bias){(vt_token)id, bias};
        ++*count;
        at = end;
        if (!*at) return CLI_OK;
    }
}

int cli_sampling_finish(cli_sampling *c, vt_sampling *sampling)
{
    size_t count = 0;
    for (size_t i = 0; i < c->stop.count; i++)
        if (!*c->stop.items[i] || strlen(c->stop.items[i]) > VT_STOP_STRING_BYTES_MAX)
            return cli_error(CLI_USAGE, "--stop: \"%.20s\" is not right, expected a text of 1 to "
                                        "%d bytes", c->stop.items[i], VT_STOP_STRING_BYTES_MAX);
    for (size_t i = 0; i < c->bias.count; i++) {
        int code = parse_biases(c->bias.items[i], NULL, &count);
        if (code != CLI_OK) return code;
    }
    if (count == 0) return CLI_OK;
    c->parsed = calloc(count, sizeof *c->parsed);
    if (!c->parsed) return cli_error(VT_ERR_MEMORY, "no memory for %zu biases", count);
    count = 0;
    for (size_t i = 0; i < c->bias.count; i++) parse_biases(c->bias.items[i], c->parsed, &count);
    sampling->logit_bias = c->parsed;
    sampling->logit_bias_count = count;
    return CLI_OK;
}

void cli_sampling_free(cli_sampling *c)
{
    free(c->parsed);
    c->parsed = NULL;
}
