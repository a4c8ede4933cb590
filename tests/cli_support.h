/* cli_support.h: voltron-run in shell lines, as a user or a script has it. */
#ifndef VTI_TEST_CLI_SUPPORT_H
#define VTI_TEST_CLI_SUPPORT_H

/* A template for chats, greedily. */
#define CHAT "--chat-template chatml -t 0 "

/* Without its end a story goes on for ever. */
#define ENDLESS "--logit-bias 2045:-inf --logit-bias 2047:-inf --context-full shift "

typedef struct test_result {
    int code; /* exit code, or 128 + signal */
    char *out, *err;
} test_result;

/* A folder for the files of a test program, there between set-up and tear-down. */
const char *test_cli_folder(void);
int test_cli_set_up(void **state);
int test_cli_tear_down(void **state);

/* Runs a line of bash in which RUN stands for voltron-run and $DIR is the folder. */
test_result test_cli(const char *line);
void test_result_free(test_result *result);

/* Runs, checks the exit code and that both texts occur (NULL: not looked at). */
void test_cli_expect(const char *line, int code, const char *in_out, const char *in_err);

/* Runs, checks the exit code; what was written to standard output, malloc'd. */
char *test_cli_output(const char *line, int code);

#endif
