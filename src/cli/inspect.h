/* inspect.h: what the two halves of inspect share. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include <jansson.h>

#include "cli.h"

/* All metadata entries, long values cut unless `all`. */
void cli_print_entries(const vt_gguf *gguf, bool all);
json_t *cli_entries_json(const vt_gguf *gguf, bool all);

/* What running the file takes, or why it cannot be run. */
void cli_print_need(const char *path);
json_t *cli_need_json(const char *path);

/* The listing of a shard store. An exit code. */
int cli_inspect_store(const char *path, bool all, bool json);

/* {"name": "F16", "shards": …, "bytes": …, "stored_bytes": …} for each precision there is. */
json_t *cli_precisions_json(const vt_store_sum sums[VT_PRECISION_COUNT]);

#endif
