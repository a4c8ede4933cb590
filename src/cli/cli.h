/* cli.h: what the commands of voltron-run share. Uses the library only through voltron.h. */
#ifndef CLI_H
#define CLI_H

#include <stdio.h>

#include "voltron.h"

/* --- options ---------------------------------------------------------------------------------- */

typedef enum cli_kind {
    CLI_FLAG,   /* bool * */
    CLI_STRING, /* const char ** */
    CLI_U32,    /* uint32_t *, low … high */
    CLI_U64,    /* uint64_t * */
    CLI_F32,    /* float *, low … high */
    CLI_SIZE,   /* uint64_t *: bytes, "512M", "1.5G" */
    CLI_KV,     /* vt_kv_type * */
    CLI_LIST,   /* cli_list *: a string each time it is given */
    CLI_HEADING /* only a line in --help */
} cli_kind;

enum { CLI_LIST_MAX = 64 };

typedef struct cli_list {
    const char *items[CLI_LIST_MAX];
    size_t count;
} cli_list;

typedef struct cli_option {
    const char *name; /* without the two dashes */
    char letter;      /* short form, or 0 */
    cli_kind kind;
    void *target;     /* keeps its value if the option is not given */
    double low, high; /* numbers */
    const char *argument, *help;
} cli_option;

typedef struct cli_command {
    const char *name, *summary, *usage;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    const char *description, *examples; /* for --help */
} cli_command;

/* Exit codes are vt_status numbers; these have a meaning of their own. */
enum { CLI_OK = VT_OK, CLI_USAGE = VT_ERR_ARGUMENT, CLI_DONE = -1 };

/* Parses argv; the table ends with an option without name. Positional arguments go to
 * positional[0 … *positional_count), *positional_count being the room on entry. Returns CLI_OK,
 * CLI_USAGE after one line on stderr, or CLI_DONE after --help. */
int cli_parse(const cli_command *command, const cli_option *options, int argc, char **argv,
              const char **positional, int *positional_count);

/* --- talking ---------------------------------------------------------------------------------- */

/* "voltron-run: …" on stderr; returns `code`. */
int cli_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what the library said. */
int cli_fail(const vt_error *err);

/* Is stderr a terminal that takes colours (no NO_COLOR, TERM not dumb)? */
bool cli_colour(void);
const char *cli_bold(void);  /* "" without colour */
const char *cli_dim(void);
const char *cli_plain(void);

/* "12.3 MiB" into a static ring of buffers: a few may be used in one printf. */
const char *cli_bytes(uint64_t bytes);

/* Characters of a text, which is UTF-8. */
int cli_columns(const char *text);

/* In lines of at most `columns`, broken at spaces, with a line break at the end. `column` is where
 * the first line goes on; the later ones are indented, those after a '\n' in the text are not. */
void cli_print_wrapped(const char *text, int columns, int column, int indent);

/* One line that is rewritten in place on a terminal, once something takes more than a second:
 * "weights to …  42 %  ETA 0:12". Nothing elsewhere. */
typedef struct cli_progress {
    uint64_t start_ns, shown_ns;
    bool shown;
} cli_progress;
void cli_progress_begin(cli_progress *progress);
void cli_progress_show(cli_progress *progress, const char *what, uint64_t done, uint64_t total);
void cli_progress_end(cli_progress *progress);
vt_progress cli_progress_callback(cli_progress *progress);

uint64_t cli_now_ns(void);

/* Warnings and errors of the library on stderr; everything if `verbose`. */
vt_log cli_log(bool verbose);

/* The path for messages: "standard input" for "-". */
const char *cli_path_name(const char *path);

/* Whole file, or stdin for "-", of at most so many bytes; malloc'd and NUL-terminated. NULL after a
 * line on stderr. */
enum { CLI_TEXT_MAX = 1 << 30, CLI_PLAN_MAX = 1 << 24 };
char *cli_read_file(const char *path, size_t most, size_t *bytes);

/* Writes a text; "-": to standard output. A file that begins otherwise is not replaced. An exit
 * code after an error line. */
int cli_save_text(const char *path, const char *text);

/* JSON array of token ids, or ids separated by white space. NULL after a line on stderr. */
vt_token *cli_parse_ids(const char *text, size_t bytes, const char *source, size_t *count);

/* --- the cache for weights --------------------------------------------------------------------- */

#define CLI_CACHE_USUAL UINT64_MAX

typedef struct cli_cache {
    const char *path;
    uint64_t max_bytes; /* CLI_CACHE_USUAL: not given; 0: no cache */
    bool none;
    char *usual;
} cli_cache;

#define CLI_CACHE_OPTIONS(c)                                                                       \
    {"cache", 0, CLI_STRING, &(c).path, 0, 0, "DIR",                                               \
     "keep weights for devices here (default: ~/.cache/voltron)"},                                 \
    {"cache-max", 0, CLI_SIZE, &(c).max_bytes, 0, 0, "SIZE",                                       \
     "at most so much (default: a tenth of what is free, at most 20G)"},                           \
    {"no-cache", 0, CLI_FLAG, &(c).none, 0, 0, NULL, "keep none"}

/* For vt_worker_params and vt_cluster_params. The path, or NULL, belongs to `cache`. */
const char *cli_cache_path(cli_cache *cache);
uint64_t cli_cache_max_bytes(const cli_cache *cache);
void cli_cache_free(cli_cache *cache);

/* --- this device's profile ---------------------------------------------------------------------- */

/* The cached profile for so many threads (0: the default), or a new one, which is kept; measuring
 * takes seconds, shows progress and can be interrupted. NULL: *code is the exit code, 130 if it
 * was. */
vt_profile *cli_profile(cli_cache *cache, uint32_t threads, int *code);

/* The same for those who can do without: *out is NULL if `none` or VOLTRON_NO_PROFILE is set, or if
 * none is cached and `when` is NULL. That it is measured is said, and `when`: "before it listens". */
int cli_profile_to_plan(cli_cache *cache, uint32_t threads, bool none, const char *when,
                        vt_profile **out);

/* What `profile --check` wants at least. */
#define CLI_LEAST_ACCURACY 0.9

/* Its parts. NULL: there is none; if one is there but is of no use, it is said why. */
vt_profile *cli_profile_cached(cli_cache *cache, uint32_t threads);
char *cli_profile_path(cli_cache *cache, uint32_t threads); /* to be freed; NULL: no cache */
/* Not one that was measured on a busy device. */
void cli_profile_keep(cli_cache *cache, uint32_t threads, const vt_profile *profile);
/* One line, if it was, or if a check found it wrong. */
void cli_profile_warn(const vt_profile *profile);
void cli_profile_params(vt_profile_params *params, uint32_t threads, cli_progress *progress);

/* --- models, devices, sessions ---------------------------------------------------------------- */

/* The file `path`, or for NULL the model that is part of this program. NULL after an error line,
 * *code then is the exit code. */
vt_model *cli_open_model(const char *path, const vt_model_params *params, int *code);

typedef struct cli_devices cli_devices; /* devices.c */

/* What the commands that compute have in common. */
typedef struct cli_compute {
    const char *model_path;
    const char *pre;     /* pre-tokenizer; NULL: the file's */
    const char *precision; /* "F16", "I8", "I4"; NULL: the file's highest */
    const char *plan_path; /* of units' precisions, pruned shards, and where they run */
    const char *save_plan_path;
    const char *devices; /* "HOST:PORT,HOST:PORT" */
    const char *split;   /* "3,2,1" or "even"; NULL: as planned */
    const char *key_path;
    uint32_t local;      /* device processes on this machine, this one included; 0: off */
    uint32_t threads;    /* 0: default */
    uint64_t memory_bytes; /* 0: what the system has to spare */
    bool verbose, no_profile;
    float ttft_s, tpot_ms; /* wanted; 0: as the library says */
    cli_cache cache;
    vt_session_params session;
    /* filled by cli_open_compute */
    vt_model *model;
    vt_cluster *cluster;
    vt_session *handle;
    cli_progress loading; /* of weights on this device */
    cli_devices *wanted;
} cli_compute;

/* What one device needs, … */
#define CLI_MODEL_OPTIONS(c)                                                                       \
    {"model", 'm', CLI_STRING, &(c).model_path, 0, 0, "FILE",                                      \
     "GGUF model or shard store (default: the small story model in this program)"},                \
    {"precision", 0, CLI_STRING, &(c).precision, 0, 0, "F16|I8|I4",                                \
     "weights to compute with (default: the highest the file has); a GGUF file's are "            \
     "made anew at every start, a shard store has them"},         \
    {"pre", 0, CLI_STRING, &(c).pre, 0, 0, "NAME",                                                 \
     "pre-tokenizer, such as qwen2, instead of the one the file names"},                           \
    {"context", 'c', CLI_U32, &(c).session.context_tokens, 1, 16777216, "N",                       \
     "tokens the conversation may have (default: the model's, at most 4096)"},                     \
    {"batch", 0, CLI_U32, &(c).session.batch_tokens, 1, 65536, "N",                                \
     "tokens of a prompt computed at once (default: 128)"},                                        \
    {"threads", 'T', CLI_U32, &(c).threads, 1, 1024, "N",                                          \
     "threads that compute (default: one per big core)"},                                          \
    {"kv", 0, CLI_KV, &(c).session.kv_type, 0, 0, "f16|f32|q8",                                 \
     "precision of the KV cache (default: f16)"},                                                  \
    {"memory", 0, CLI_SIZE, &(c).memory_bytes, 0, 0, "SIZE",                                       \
     "most that weights, KV cache and scratch take here, such as 900M or 2G "                     \
     "(default: what is available, less a tenth)"},               \
    {"verbose", 'v', CLI_FLAG, &(c).verbose, 0, 0, NULL, "say more on stderr"}

/* … and several. */
#define CLI_COMPUTE_OPTIONS(c)                                                                     \
    CLI_MODEL_OPTIONS(c),                                                                          \
    {"plan", 0, CLI_STRING, &(c).plan_path, 0, 0, "FILE",                                          \
     "instead of --precision: every unit at its precision in this plan, without the "             \
     "shards that are pruned there; with devices also: where it "\
     "runs there"},                                                \
    {NULL, 0, CLI_HEADING, NULL, 0, 0, NULL, "Devices"},                                           \
    {"devices", 'd', CLI_STRING, &(c).devices, 0, 0, "HOST:PORT,…",                                \
     "workers that may run layers too, as is planned for the fastest answer"},                     \
    {"split", 0, CLI_STRING, &(c).split, 0, 0, "A,B,…|even",                                       \
     "by hand: layers of this device, then of each worker (one number less: this "                \
     "device only embeds and samples), or even shares"},           \
    {"no-profile", 0, CLI_FLAG, &(c).no_profile, 0, 0, NULL,                                       \
     "plan without this device's speed (else it is measured, once)"},                              \
    {"save-plan", 0, CLI_STRING, &(c).save_plan_path, 0, 0, "FILE",                                \
     "write what runs where to FILE, for --plan"},                                                 \
    {"local", 0, CLI_U32, &(c).local, 1, 64, "N",                                                  \
     "try it out: N device processes on this machine"},                                            \
    {"key", 0, CLI_STRING, &(c).key_path, 0, 0, "FILE",                                            \
     "cluster key, for devices beyond this machine (also VOLTRON_KEY)"},                           \
    CLI_CACHE_OPTIONS((c).cache)

/* Fills the defaults. */
void cli_compute_init(cli_compute *compute);

/* The parts of the next one: devices that are to take part, before anything has threads; the
 * cluster, if any; --save-plan. */
int cli_start_devices(cli_compute *compute);
int cli_open_devices(cli_compute *compute, const char *plan_json);
int cli_save_plan(const cli_compute *compute);
void cli_free_devices(cli_compute *compute);

/* Opens model, workers, cluster and session. An exit code after an error line. */
int cli_open_compute(cli_compute *compute);
void cli_close_compute(cli_compute *compute);

/* Ctrl-C cancels `session` (a second one ends the program). NULL: back to normal. */
void cli_cancel_on_interrupt(vt_session *session);
/* Ctrl-C only sets what the next function tells, until cli_cancel_on_interrupt; a fourth one ends
 * the program. */
void cli_catch_interrupts(void);
bool cli_interrupted(void);
bool cli_terminated(void); /* by SIGTERM */

/* Forgets earlier ones; the program ends at the one after `allowed`, which is 1 at the start. */
void cli_interrupts_reset(int allowed);

/* What this device's memory is used for, one line on stderr. */
void cli_print_memory(const cli_compute *compute);

/* Table of devices and what they run, on stderr. With `busy`, shares of the time since `start`. */
void cli_print_devices(const cli_compute *compute, bool busy);

/* --- sampling --------------------------------------------------------------------------------- */

/* What of the sampling options is not a number. */
typedef struct cli_sampling {
    cli_list bias, stop;
    vt_logit_bias *parsed; /* what vt_sampling.logit_bias points to after cli_sampling_finish */
} cli_sampling;

/* `s`: a vt_sampling, `c`: a cli_sampling. */
#define CLI_SAMPLING_OPTIONS(s, c)                                                                 \
    {NULL, 0, CLI_HEADING, NULL, 0, 0, NULL, "Sampling, in this order"},                           \
    {"logit-bias", 0, CLI_LIST, &(c).bias, 0, 0, "ID:X,…",                                         \
     "add X to the logit of token ID; -inf: never draw it"},                                       \
    {"repeat-penalty", 0, CLI_F32, &(s).repeat_penalty, 0.01, 100, "X",                            \
     "make tokens seen lately less likely; 1: off (1)"},                                           \
    {"frequency-penalty", 0, CLI_F32, &(s).frequency_penalty, -100, 100, "X",                      \
     "the same by X per time it was seen; 0: off (0)"},                                            \
    {"presence-penalty", 0, CLI_F32, &(s).presence_penalty, -100, 100, "X",                        \
     "the same by X once; 0: off (0)"},                                                            \
    {"repeat-last", 0, CLI_U32, &(s).repeat_last_tokens, 0, 16777216, "N",                         \
     "tokens that the penalties look back (64)"},                                                  \
    {"top-k", 0, CLI_U32, &(s).top_k, 0, 16777216, "N", "only the N most likely; 0: off (40)"},    \
    {"typical", 0, CLI_F32, &(s).typical_p, 0.000001, 1, "X",                                      \
     "only the most typical that make up X; 1: off (1)"},                                          \
    {"top-p", 0, CLI_F32, &(s).top_p, 0.000001, 1, "X",                                            \
     "only the most likely that make up X; 1: off (0.95)"},                                        \
    {"min-p", 0, CLI_F32, &(s).min_p, 0, 1, "X",                                                   \
     "only those at least X times as likely as the first; 0: off (0.05)"},                         \
    {"temperature", 't', CLI_F32, &(s).temperature, 0, 100, "X",                                   \
     "0: always the most likely token (0.7)"},                                                     \
    {"seed", 's', CLI_U64, &(s).seed, 0, 0, "N",                                                   \
     "same seed, same text (default: a new one each time)"},                                       \
    {"stop", 0, CLI_LIST, &(c).stop, 0, 0, "TEXT",                                                 \
     "end before TEXT would appear; may be given several times"}

/* Turns the texts into what the library takes. An exit code after an error line. */
int cli_sampling_finish(cli_sampling *c, vt_sampling *sampling);
void cli_sampling_free(cli_sampling *c);

/* --- local device processes ------------------------------------------------------------------- */

enum { CLI_LOCAL_MAX = 64 };

/* Starts `count` workers of `threads` each on loopback as child processes and writes their addresses.
 * They read weights from `model_path` (may be NULL) themselves. An exit code after an error line.
 * They end with this process, or by cli_stop_workers. */
int cli_start_workers(uint32_t count, uint32_t threads, const char *model_path,
                      char addresses[][64]);
void cli_stop_workers(void);

/* They stand still, as this process is about to, or go on. */
void cli_pause_workers(bool pause);

/* --- commands --------------------------------------------------------------------------------- */

extern const cli_command cli_run, cli_worker, cli_inspect, cli_pack, cli_verify, cli_calibrate,
    cli_importance, cli_tokenize, cli_logits, cli_ppl, cli_plan, cli_profile_command;

#endif
