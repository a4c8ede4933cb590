/* main.c: voltron-run, which command. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const cli_command *const commands[] = {
    &cli_run, &cli_worker, &cli_inspect, &cli_pack, &cli_verify, &cli_calibrate,
    &cli_importance, &cli_tokenize, &cli_logits, &cli_ppl, &cli_plan,
    &cli_profile_command,
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_overview(FILE *out)
{
    fprintf(out, "voltron-run %s: a language model on all the devices around you\n\nUsage:\n",
            vt_version());
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  voltron-run %s\n      %s\n", commands[i]->usage, commands[i]->summary);
    fprintf(out,
            "\nvoltron-run COMMAND --help explains a command; without a command it is \"run\".\n"
            "Often used with \"run\": -n N tokens, -t X temperature, -T N threads, --local N or\n"
            "--devices LIST for several devices, --json; all of them: voltron-run run --help.\n"
            "voltron-run --version tells the version.\n\n"
            "Exit codes: 0 success; 2 wrong usage; 3 a file cannot be read; 4 a file is\n"
            "damaged; 5 not supported; 6 not enough memory; 7 context full; 8 a device is\n"
            "lost; 9 to 13 other trouble with a device; 130 interrupted.\n");
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    const char *first = argv[1];
    if (strcmp(first, "--version") == 0 || strcmp(first, "version") == 0) {
        printf("voltron-run %s\n", vt_version());
        return CLI_OK;
    }
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 || strcmp(first, "help") == 0) {
        print_overview(stdout);
        return CLI_OK;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(first, commands[i]->name) == 0) return commands[i]->run(argc - 1, argv + 1);
    if (first[0] == '-') return cli_run.run(argc, argv);
    if (strchr(first, ' '))
        return cli_error(CLI_USAGE, "a text to go on from is given with -p: voltron-run -p \"%s\"",
                         first);
    return cli_error(CLI_USAGE, "unknown command \"%s\"; voltron-run --help lists them", first);
}

/* Whoever starts us with a closed standard descriptor (daemon managers do) would have a socket take
 * its number, and what is printed go there. */
static void fill_standard_descriptors(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) close(fd);
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow further is an error of write */
    int code = dispatch(argc, argv);
    /* What was printed but did not arrive is a failure. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK)
        code = cli_error(VT_ERR_IO, "cannot write to standard output");
    return code;
}
