/* Conversations with voltron-run: on a terminal, from scripts, over several devices. */
#include "support.h"
#include "pty_support.h"

#include "voltron.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STORIES "src/assets/stories-4m-f16.gguf"
#define CHAT "--chat-template chatml -t 0 "

static char folder[] = "/tmp/voltron-chat-XXXXXX";

/* Output of a shell line in which RUN stands for voltron-run and DIR for the test's folder;
 * malloc'd. stderr goes to DIR/err. */
static char *run(const char *line, int expected_code)
{
    char command[8192], path[256];
    const char *runner = getenv("VOLTRON_RUNNER");
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(command, sizeof command, "RUN() { %s %s/voltron-run \"$@\"; }; DIR=%s; { %s; } "
             ">%s 2>%s/err </dev/null", runner ? runner : "", test_bin_folder(), folder, line, path,
             folder);
    setenv("VOLTRON_TEST_LINE", command, 1);
    int status = system("bash -c \"$VOLTRON_TEST_LINE\"");
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    char *out = (char *)test_read_file(path, NULL);
    if (code != expected_code) {
        snprintf(path, sizeof path, "%s/err", folder);
        fail_msg("%s: exit code %d, expected %d\n%s%s", line, code, expected_code, out,
                 (char *)test_read_file(path, NULL));
    }
    return out;
}

/* stderr of the last run holds this. */
static void said(const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/err", folder);
    char *err = (char *)test_read_file(path, NULL);
    if (!strstr(err, text)) fail_msg("no \"%s\" in:\n%s", text, err);
    free(err);
}

static void check(const char *line, int code, const char *in_out, const char *in_err)
{
    char *out = run(line, code);
    if (in_out && !strstr(out, in_out)) fail_msg("%s: no \"%s\" in:\n%s", line, in_out, out);
    if (in_err) said(in_err);
    free(out);
}

/* The history that the program wrote; malloc'd. */
static char *history(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/voltron/history", folder);
    return (char *)test_read_file(path, NULL);
}

static void forget_history(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/voltron/history", folder);
    unlink(path);
}

static void expect_history(const char *expected)
{
    char *lines = history();
    assert_string_equal(lines, expected);
    free(lines);
}

/* --- on a terminal ---------------------------------------------------------------------------- */

/* What switches pasting on comes once per line that is asked for: from now on it is raw. */
static void expect_prompt(test_pty *pty)
{
    test_pty_expect(pty, "\033[?2004h");
    test_pty_expect(pty, "> ");
}

static void test_editing(void **state)
{
    (void)state;
    forget_history();
    test_pty *pty = test_pty_start(CHAT "-n 2");
    test_pty_expect(pty, "/help");
    expect_prompt(pty);
    assert_false(test_pty_is_cooked(pty));
    test_pty_send(pty, "Helo\033[Dl\r"); /* left, insert */
    expect_prompt(pty);
    test_pty_send(pty, "caf\xC3\xA9\xE4\xBD\xA0x\177\177\r"); /* backspace takes characters */
    expect_prompt(pty);
    test_pty_send(pty, "b\001a\005c\002\004\r");   /* home, end, left and delete: "ab" */
    expect_prompt(pty);
    test_pty_send(pty, "one two three\027\027four\r"); /* two words go */
    expect_prompt(pty);
    test_pty_send(pty, "e\xCC\x81z\033[D\033[Dy\033[H\013kept\r"); /* cut to the end */
    expect_prompt(pty);
    test_pty_send(pty, "x\xFFy\xC3z\033[99~\r");   /* what means nothing does nothing */
    expect_prompt(pty);
    test_pty_send(pty, "/exit\r");
    assert_int_equal(test_pty_finish(pty), 0);
    expect_history("Hello\ncaf\xC3\xA9\nab\none four\nkept\nxyz\n/exit\n");
}

static void test_history(void **state)
{
    (void)state;
    forget_history();
    test_pty *pty = test_pty_start(CHAT "-n 2");
    expect_prompt(pty);
    test_pty_send(pty, "first\r");
    expect_prompt(pty);
    test_pty_send(pty, "\004");
    assert_int_equal(test_pty_finish(pty), 0);
    pty = test_pty_start(CHAT "-n 2"); /* another run knows it */
    expect_prompt(pty);
    test_pty_send(pty, "typed\033[A\033[B!\r"); /* up and down again */
    expect_prompt(pty);
    test_pty_send(pty, "\033[A\033[A\033[A, again\r");
    expect_prompt(pty);
    test_pty_send(pty, "\004");
    assert_int_equal(test_pty_finish(pty), 0);
    expect_history("first\ntyped!\nfirst, again\n");
}

static void test_paste(void **state)
{
    (void)state;
    forget_history();
    test_pty *pty = test_pty_start(CHAT "-n 2");
    expect_prompt(pty);
    test_pty_send(pty, "\033[200~line one\rline two\\\033[31m\001\033[201~, end\r");
    expect_prompt(pty);
    test_pty_send(pty, "\004");
    assert_int_equal(test_pty_finish(pty), 0);
    expect_history("line one\\nline two\\\\, end\n"); /* one message, escaped in the file */
}

/* A line longer than the screen is wide, and higher: it is shown around the cursor. */
static void test_long_lines(void **state)
{
    (void)state;
    forget_history();
    enum { BYTES = 2560 };
    test_pty *pty = test_pty_start(CHAT "-n 2 -c 4000");
    char text[BYTES];
    memset(text, 'm', BYTES);
    expect_prompt(pty);
    /* Made a command, and an unknown one, at the end: a prompt as long takes minutes emulated. */
    for (int i = 0; i < BYTES; i += 512) test_pty_send_bytes(pty, text + i, 512);
    test_pty_send(pty, "\001/\005Z\r");
    test_pty_expect(pty, "Z\r\n");
    expect_prompt(pty);
    test_pty_send(pty, "\004");
    assert_int_equal(test_pty_finish(pty), 0);
    char *lines = history();
    assert_int_equal(strlen(lines), BYTES + 3);
    assert_int_equal(lines[0], '/');
    free(lines);
}

/* Without its end a text goes on for ever. */
#define ENDLESS "--logit-bias 2045:-inf --logit-bias 2047:-inf --context-full shift "

static void test_interrupts(void **state)
{
    (void)state;
    test_pty *pty = test_pty_start(ENDLESS "-c 200");
    expect_prompt(pty);
    test_pty_send(pty, "Once upon a time\r");
    test_pty_expect(pty, "Once upon a time\r\n"); /* the typed line */
    test_pty_expect(pty, " the ");                /* some story */
    test_pty_send(pty, "\003");
    expect_prompt(pty);
    test_pty_send(pty, "half a line\003"); /* goes away */
    test_pty_expect(pty, "^C");
    expect_prompt(pty);
    test_pty_send(pty, " The end came\r");
    test_pty_expect(pty, "The end came\r\n");
    test_pty_expect(pty, " the ");
    test_pty_send(pty, "\003");
    expect_prompt(pty);
    test_pty_send(pty, "\003");
    test_pty_expect(pty, "leaves)");
    expect_prompt(pty);
    test_pty_send(pty, "\003");
    assert_int_equal(test_pty_finish(pty), 0);
}

/* Whatever ends the program, the terminal is usable behind it. */
static void test_terminal_is_restored(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGHUP, SIGSEGV, SIGINT, 0};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        test_pty *pty = test_pty_start(CHAT "-n 2");
        expect_prompt(pty);
        assert_false(test_pty_is_cooked(pty));
        if (signals[i])
            kill(pty->pid, signals[i]);
        else
            test_pty_send(pty, "\004");
        test_pty_expect(pty, "\033[?2004l"); /* pasting is as it was, too */
        siginfo_t ended;
        waitid(P_PID, (id_t)pty->pid, &ended, WEXITED | WNOWAIT);
        assert_true(test_pty_is_cooked(pty));
        int code = test_pty_finish(pty);
        assert_true(code == 0 || code >= 128 || code == 1); /* 1: AddressSanitizer saw SIGSEGV */
    }
    /* While it answers the terminal is an ordinary one. */
    test_pty *pty = test_pty_start(ENDLESS "-c 200");
    expect_prompt(pty);
    test_pty_send(pty, "Once upon a time\r");
    test_pty_expect(pty, " the ");
    assert_true(test_pty_is_cooked(pty));
    kill(pty->pid, SIGTERM);
    assert_int_equal(test_pty_finish(pty), 128 + SIGTERM);
}

/* The same questions on a terminal and from a file: the same answers. */
static void test_turns_on_a_terminal(void **state)
{
    (void)state;
    char *out = run("printf 'Tell me a story.\\nAnd then?\\n' | RUN -i " CHAT "-n 12", 0);
    char *second = strchr(out, '\n');
    assert_non_null(second);
    *second++ = 0;
    second[strcspn(second, "\n")] = 0;
    assert_true(strlen(out) > 10 && strlen(second) > 10);
    test_pty *pty = test_pty_start(CHAT "-n 12");
    expect_prompt(pty);
    test_pty_send(pty, "Tell me a story.\r");
    test_pty_expect(pty, out);
    expect_prompt(pty);
    test_pty_send(pty, "And then?\r");
    test_pty_expect(pty, second);
    expect_prompt(pty);
    test_pty_send(pty, "/stats\r");
    test_pty_expect(pty, "2 answers, 24 tokens");
    expect_prompt(pty);
    test_pty_send(pty, "/nonsense\r");
    test_pty_expect(pty, "no command /nonsense");
    expect_prompt(pty);
    test_pty_send(pty, "/reset\r");
    expect_prompt(pty);
    test_pty_send(pty, "Tell me a story.\r");
    test_pty_expect(pty, out); /* nothing is left of before */
    expect_prompt(pty);
    test_pty_send(pty, "/help\r");
    test_pty_expect(pty, "/save FILE");
    test_pty_send(pty, "/exit\r");
    assert_int_equal(test_pty_finish(pty), 0);
    free(out);
}

/* Token 27 is the byte ESC. */
static void test_control_characters(void **state)
{
    (void)state;
    test_pty *pty = test_pty_start("-p x -n 3 -t 0 --logit-bias 27:1000");
    test_pty_expect(pty, "x^[^[^[");
    assert_int_equal(test_pty_finish(pty), 0);
    check("RUN -p x -n 3 -t 0 --logit-bias 27:1000", 0, "x\033\033\033\n", NULL);
    /* A script gets no escapes of ours. */
    char *out = run("printf 'Hello\\n/help\\n/stats\\n' | TERM=xterm RUN -i " CHAT "-n 5", 0);
    assert_null(strchr(out, '\033'));
    assert_null(strstr(out, "> "));
    said("/save FILE");
    free(out);
    check("grep -c $'\\033' $DIR/err; true", 0, "0", NULL);
}

/* --- scripts ---------------------------------------------------------------------------------- */

static void test_commands(void **state)
{
    (void)state;
    check("printf '/bogus\\nHello\\n' | RUN -i " CHAT "-n 3", 2, NULL, "no command /bogus");
    check("printf '//bogus\\n' | RUN -i " CHAT "-n 3", 0, NULL, NULL);
    check("printf '/reset now\\n' | RUN -i " CHAT, 2, NULL, "takes no argument");
    check("printf '/save\\n' | RUN -i " CHAT, 2, NULL, "/save FILE");
    check("printf '/load /nonexistent/x\\n' | RUN -i " CHAT, 3, NULL, "/nonexistent/x");
    check("printf '/load Makefile\\n' | RUN -i " CHAT, 4, NULL, "Makefile");
    check("printf '/system x\\n' | RUN -i", 2, NULL, "chat template");
    check("printf '/exit\\n/bogus\\n' | RUN -i " CHAT, 0, NULL, NULL);
    check("printf '\\n  \\n' | RUN -i " CHAT, 0, NULL, NULL);
    /* --system and /system are the same */
    char *a = run("printf 'Hello\\n' | RUN -i " CHAT "-n 12 --system 'Talk about a fish.'", 0);
    char *b = run("printf '/system Talk about a fish.\\nHello\\n' | RUN -i " CHAT "-n 12", 0);
    char *c = run("printf 'Hello\\n' | RUN -i " CHAT "-n 12", 0);
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
    free(a);
    free(b);
    free(c);
}

static void test_wrong_usage(void **state)
{
    (void)state;
    check("RUN -p x --system y", 2, NULL, "--chat-template NAME");
    check("RUN -p x --no-thinking", 2, NULL, "--chat-template NAME");
    check("RUN -p x --chat-template nonsense", 2, NULL, "known are chatml");
    check("RUN -p x --chat-template chatml --no-thinking", 5, NULL, "no switch");
    check("RUN -p x --chat-template chatml --special", 2, NULL, "--no-chat");
    check("RUN -p x --no-chat --system y", 2, NULL, "exclude each other");
    check("RUN -p x --context-full wait", 2, NULL, "stop or shift");
    check("RUN -i -f -", 2, NULL, "standard input");
    check("RUN -p x --chat-template gemma --system y -n 1", 0, NULL, "<start_of_turn>");
}

static void test_prompts(void **state)
{
    (void)state;
    char *asked = run("RUN -p 'Tell me.' " CHAT "-n 12", 0);
    char *piped = run("printf 'Tell me.' | RUN " CHAT "-n 12", 0);
    char *file = run("printf 'Tell me.' >$DIR/q; RUN -f $DIR/q " CHAT "-n 12", 0);
    char *dash = run("printf 'Tell me.' | RUN -f - " CHAT "-n 12", 0);
    char *first = run("printf '' | RUN -i -p 'Tell me.' " CHAT "-n 12", 0);
    assert_null(strstr(asked, "Tell me.")); /* a question is not part of the answer */
    assert_true(strlen(asked) > 10);
    assert_string_equal(asked, piped);
    assert_string_equal(asked, file);
    assert_string_equal(asked, dash);
    assert_string_equal(asked, first);
    free(asked);
    free(piped);
    free(file);
    free(dash);
    free(first);
    check("RUN -f /nonexistent/q", 3, NULL, "/nonexistent/q");
    check("printf 'Once upon\\n a time\\n' | RUN -t 0 -n 4", 0, "Once upon\n a time\n", NULL);
}

static void test_json(void **state)
{
    (void)state;
    char *out = run("printf 'Tell me.\\nAnd?\\n' | RUN -i --json --local 2 " CHAT "-n 7", 0);
    char *rest = out;
    for (int i = 0; i < 2; i++) {
        char *line = strsep(&rest, "\n");
        json_t *object = json_loads(line, 0, NULL);
        if (!json_is_object(object)) fail_msg("no object: %s", line);
        assert_true(strlen(json_string_value(json_object_get(object, "text"))) > 3);
        assert_string_equal(json_string_value(json_object_get(object, "ended_by")), "length");
        assert_int_equal(json_integer_value(json_object_get(object, "answer_tokens")), 7);
        json_int_t prompt = json_integer_value(json_object_get(object, "prompt_tokens"));
        json_int_t computed = json_integer_value(json_object_get(object, "computed_tokens"));
        assert_true(computed > 0 && (i ? computed < prompt : computed == prompt));
        assert_true(json_number_value(json_object_get(object, "prefill_s")) > 0);
        assert_int_equal(json_array_size(json_object_get(object, "devices")), 2);
        json_decref(object);
    }
    assert_string_equal(rest, "");
    free(out);
}

static void test_full_contexts(void **state)
{
    (void)state;
    const char *line = "for i in 1 2 3 4 5 6 7 8; do echo Once upon a time there was a dog; done | "
                       "RUN -i -c 75 -n 20 " CHAT "--json --context-full %s";
    char command[512];
    snprintf(command, sizeof command, line, "stop");
    check(command, 7, "\"ended_by\": \"context\"", "the context holds 75");
    snprintf(command, sizeof command, line, "shift");
    char *out = run(command, 0);
    int lines = 0;
    for (char *at = out; (at = strchr(at, '\n')) != NULL; at++) lines++;
    assert_int_equal(lines, 8);
    assert_null(strstr(out, "\"context\""));
    assert_non_null(strstr(out, "\"left_out_messages\": 2"));
    free(out);
    check("RUN -p 'Once upon a time' -c 50 -n 300 --json --logit-bias 2045:-inf", 0,
          "\"ended_by\": \"context\"", NULL);
    check("RUN -p 'Once upon a time' -c 50 -n 300 --json " ENDLESS, 0, "\"ended_by\": \"length\"",
          NULL);
}

/* --- session files ---------------------------------------------------------------------------- */

static void check_saved(const char *options)
{
    char command[1024];
    snprintf(command, sizeof command, "printf 'Tell me.\\nAnd?\\nWhy?\\n' | RUN -i -n 9 -t 0 %s",
             options);
    char *whole = run(command, 0);
    snprintf(command, sizeof command,
             "printf \"Tell me.\\nAnd?\\n/save $DIR/s\\n\" | RUN -i -n 9 -t 0 %s;"
             "printf \"/load $DIR/s\\nWhy?\\n\" | RUN -i -n 9 -t 0 %s", options, options);
    char *parts = run(command, 0);
    assert_string_equal(whole, parts);
    assert_true(strlen(whole) > 30);
    said("tokens loaded from");
    free(whole);
    free(parts);
}

static void test_save_and_load(void **state)
{
    (void)state;
    check_saved("");
    check_saved("--chat-template chatml --system 'Be kind.'");
    check_saved("--chat-template chatml --local 2");
    /* Of another kind: an error, and the chat is what it was. */
    check("printf \"/load $DIR/s\\n\" | RUN -i --chat-template zephyr", 2, NULL, "chatml");
    check("printf \"Hi\\n/save $DIR/s\\n\" | RUN -i -n 3", 0, NULL, NULL);
    check("printf \"/load $DIR/s\\n\" | RUN -i " CHAT, 4, NULL, "--no-chat");
}

/* What was computed is not computed again. */
static void test_loading_keeps_the_cache(void **state)
{
    (void)state;
    check("printf \"Tell me.\\n/save $DIR/s\\n\" | RUN -i -n 9 " CHAT, 0, NULL, NULL);
    char *out = run("printf \"/load $DIR/s\\nWhy?\\n\" | RUN -i -n 9 --json " CHAT, 0);
    json_t *object = json_loads(out, 0, NULL);
    json_int_t prompt = json_integer_value(json_object_get(object, "prompt_tokens"));
    json_int_t computed = json_integer_value(json_object_get(object, "computed_tokens"));
    assert_true(prompt > 0 && computed > 0 && computed < prompt - 15);
    json_decref(object);
    free(out);
}

/* --- devices, files --------------------------------------------------------------------------- */

static void test_chat_over_devices(void **state)
{
    (void)state;
    const char *line = "printf 'Tell me.\\nAnd?\\n/system Be kind.\\nWhy?\\n' | RUN -i -n 20 "
                       "--kv f32 " CHAT "%s %s";
    static const char *const models[] = {NULL, "golden/t-llama.gguf", "golden/t-gemma3.gguf",
                                         "golden/t-qwen2moe.gguf"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const char *path = models[i] ? test_shared_path(models[i]) : NULL;
        char command[1024], model[512] = "";
        if (models[i] && !path) continue;
        if (path) snprintf(model, sizeof model, "-m %s", path);
        snprintf(command, sizeof command, line, model, "");
        char *one = run(command, 0);
        snprintf(command, sizeof command, line, model, "--local 3");
        char *three = run(command, 0);
        assert_string_equal(one, three);
        assert_true(strlen(one) > 20);
        free(one);
        free(three);
    }
}

/* The story model with a chat template: one more entry of metadata behind the header. Its length is
 * a multiple of the alignment, so that everything behind it stays aligned. */
static void write_model(const char *path, const char *template)
{
    static const char key[] = "tokenizer.chat_template";
    size_t bytes, template_bytes = strlen(template);
    size_t entry = 8 + sizeof key - 1 + 4 + 8 + template_bytes, padded = (entry + 31) / 32 * 32;
    unsigned char *file = test_read_file(STORIES, &bytes);
    FILE *out = fopen(path, "wb");
    uint64_t entries, key_bytes = sizeof key - 1;
    uint64_t text_bytes = template_bytes + padded - entry;
    memcpy(&entries, file + 16, 8);
    entries++;
    fwrite(file, 1, 16, out);
    fwrite(&entries, 8, 1, out);
    fwrite(&key_bytes, 8, 1, out);
    fwrite(key, 1, key_bytes, out);
    fwrite(&(uint32_t){8}, 4, 1, out);
    fwrite(&text_bytes, 8, 1, out);
    fwrite(template, 1, template_bytes, out);
    for (size_t i = entry; i < padded; i++) fputc(' ', out);
    fwrite(file + 24, 1, bytes - 24, out);
    assert_int_equal(fclose(out), 0);
    free(file);
}

static void test_templates_in_files(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/chat.gguf", folder);
    write_model(path, "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + "
                      "message.content + '<|im_end|>\\n' }}{% endfor %}"
                      "{{ '<|im_start|>assistant\\n' }}");
    char *own = run("RUN -m $DIR/chat.gguf -p 'Tell me.' -n 12 -t 0", 0);
    char *named = run("RUN -p 'Tell me.' -n 12 " CHAT, 0);
    assert_string_equal(own, named); /* a model with a template is asked */
    check("RUN -m $DIR/chat.gguf -p 'Once upon' -n 2 --no-chat", 0, "Once upon", NULL);
    check("RUN -m $DIR/chat.gguf -p x --special", 2, NULL, "--no-chat");
    write_model(path, "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
    check("RUN -m $DIR/chat.gguf -p x", 5, NULL, "none of those that are known");
    said("--no-chat");
    check("RUN -m $DIR/chat.gguf -p 'Once upon' -n 2 --no-chat", 0, "Once upon", NULL);
    char *chosen = run("RUN -m $DIR/chat.gguf -p 'Tell me.' -n 12 " CHAT, 0);
    assert_string_equal(chosen, named);
    free(own);
    free(named);
    free(chosen);
}

static int set_up(void **state)
{
    (void)state;
    unsetenv("NO_COLOR");
    if (!mkdtemp(folder)) return -1;
    return setenv("XDG_STATE_HOME", folder, 1);
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_editing),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_paste),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_interrupts),
        cmocka_unit_test(test_terminal_is_restored),
        cmocka_unit_test(test_turns_on_a_terminal),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_wrong_usage),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_full_contexts),
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_loading_keeps_the_cache),
        cmocka_unit_test(test_chat_over_devices),
        cmocka_unit_test(test_templates_in_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
