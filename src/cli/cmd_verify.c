/* cmd_verify.c: is every byte of a file as it was written? */
#include <inttypes.h>

#include "cli.h"

static bool cancelled(void *user)
{
    (void)user;
    return cli_interrupted();
}

static int verify_store(const char *path, uint32_t threads)
{
    vt_store *store;
    vt_store_info info;
    vt_error err;
    cli_progress progress;
    if (vt_store_open(path, &store, &err) != VT_OK) return cli_fail(&err);
    vt_store_get_info(store, &info);
    vt_pack_params params = vt_pack_params_default();
    params.threads = threads;
    params.cancelled = cancelled;
    params.progress = cli_progress_callback(&progress);
    cli_catch_interrupts();
    cli_progress_begin(&progress);
    vt_status status = vt_store_verify(store, &params, &err);
    cli_progress_end(&progress);
    vt_store_close(store);
    if (status == VT_ERR_CANCELLED) return 130;
    if (status != VT_OK) return cli_fail(&err);
    printf("%s: all %s are as they were written\n", path, cli_bytes(info.file_bytes));
    return CLI_OK;
}

/* A GGUF file has no checksums. */
static int verify_gguf(const char *path)
{
    vt_gguf *gguf;
    vt_error err;
    if (vt_gguf_open(path, &gguf, &err) != VT_OK) return cli_fail(&err);
    printf("%s: a GGUF file; its %" PRIu64 " metadata entries and %" PRIu64
           " tensors are well formed and\nwhere they should be. It has no checksums: whether its "
           "weights are right cannot be told.\n",
           path, vt_gguf_entry_count(gguf), vt_gguf_tensor_count(gguf));
    vt_gguf_close(gguf);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    uint32_t threads = 0;
    const char *path;
    int count = 1;
    const cli_option options[] = {
        {"threads", 'T', CLI_U32, &threads, 1, 1024, "N",
         "threads that check (default: one per big core)"},
        {0},
    };
    int code = cli_parse(&cli_verify, options, argc, argv, &path, &count);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!count) return cli_error(CLI_USAGE, "verify needs a file");
    return vt_store_is(path) ? verify_store(path, threads) : verify_gguf(path);
}

const cli_command cli_verify = {
    "verify",
    "Check every byte of a shard store, or the structure of a GGUF file.",
    "verify FILE [--threads N]",
    run,
    NULL,
    "  voltron-run verify model.vts\n",
};
