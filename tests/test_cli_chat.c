/* Conversations with voltron-run: on a terminal, from scripts, over several devices. */
#include "cli_support.h"
#include "pty_support.h"
#include "support.h"

#include "voltron.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The history that the program wrote; malloc'd. */
static char *history(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/voltron/history", test_cli_folder());
    return (char *)test_read_file(path, NULL);
}

static void forget_history(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/voltron/history", test_cli_folder());
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
    char *out = test_cli_output("printf 'Tell me a story.\\nAnd then?\\n' | RUN -i " CHAT "-n 12", 0);
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
    test_cli_expect("RUN -p x -n 3 -t 0 --logit-bias 27:1000", 0, "x\033\033\033\n", NULL);
    /* A script gets no escapes of ours. */
    test_result r = test_cli("printf 'Hello\\n/help\\n/stats\\n' | TERM=xterm RUN -i " CHAT "-n 5");
    assert_int_equal(r.code, 0);
    assert_null(strchr(r.out, '\033'));
    assert_null(strstr(r.out, "> "));
    assert_non_null(strstr(r.err, "/save FILE"));
    assert_non_null(strstr(r.err, "1 answer, 5 tokens"));
    assert_null(strchr(r.err, '\033'));
    test_result_free(&r);
}

/* --- scripts ---------------------------------------------------------------------------------- */

static void test_commands(void **state)
{
    (void)state;
    test_cli_expect("printf '/bogus\\nHello\\n' | RUN -i " CHAT "-n 3", 2, NULL, "no command /bogus");
    test_cli_expect("printf '//bogus\\n' | RUN -i " CHAT "-n 3", 0, NULL, NULL);
    test_cli_expect("printf '/reset now\\n' | RUN -i " CHAT, 2, NULL, "takes no argument");
    test_cli_expect("printf '/save\\n' | RUN -i " CHAT, 2, NULL, "/save FILE");
    test_cli_expect("printf '/load /nonexistent/x\\n' | RUN -i " CHAT, 3, NULL, "/nonexistent/x");
    test_cli_expect("printf '/load Makefile\\n' | RUN -i " CHAT, 4, NULL, "Makefile");
    test_cli_expect("printf '/system x\\n' | RUN -i", 2, NULL, "chat template");
    test_cli_expect("printf '/exit\\n/bogus\\n' | RUN -i " CHAT, 0, NULL, NULL);
    test_cli_expect("printf '\\n  \\n' | RUN -i " CHAT, 0, NULL, NULL);
    /* --system and /system are the same */
    char *a = test_cli_output("printf 'Hello\\n' | RUN -i " CHAT "-n 12 --system 'Talk about a fish.'", 0);
    char *b = test_cli_output("printf '/system Talk about a fish.\\nHello\\n' | RUN -i " CHAT "-n 12", 0);
    char *c = test_cli_output("printf 'Hello\\n' | RUN -i " CHAT "-n 12", 0);
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
    free(a);
    free(b);
    free(c);
}

static void test_wrong_usage(void **state)
{
    (void)state;
    test_cli_expect("RUN -p x --system y", 2, NULL, "--chat-template NAME");
    test_cli_expect("RUN -p x --no-thinking", 2, NULL, "--chat-template NAME");
    test_cli_expect("RUN -p x --chat-template nonsense", 2, NULL, "known are chatml");
    test_cli_expect("RUN -p x --chat-template chatml --no-thinking", 5, NULL, "no switch");
    test_cli_expect("RUN -p x --chat-template chatml --special", 2, NULL, "--no-chat");
    test_cli_expect("RUN -p x --no-chat --system y", 2, NULL, "exclude each other");
    test_cli_expect("RUN -p x --context-full wait", 2, NULL, "stop or shift");
    test_cli_expect("RUN -i -f -", 2, NULL, "standard input");
    test_cli_expect("RUN -p x --chat-template gemma --system y -n 1", 0, NULL, "<start_of_turn>");
}

static void test_prompts(void **state)
{
    (void)state;
    char *asked = test_cli_output("RUN -p 'Tell me.' " CHAT "-n 12", 0);
    char *piped = test_cli_output("printf 'Tell me.' | RUN " CHAT "-n 12", 0);
    char *file = test_cli_output("printf 'Tell me.' >$DIR/q; RUN -f $DIR/q " CHAT "-n 12", 0);
    char *dash = test_cli_output("printf 'Tell me.' | RUN -f - " CHAT "-n 12", 0);
    char *first = test_cli_output("printf '' | RUN -i -p 'Tell me.' " CHAT "-n 12", 0);
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
    test_cli_expect("RUN -f /nonexistent/q", 3, NULL, "/nonexistent/q");
    test_cli_expect("printf 'Once upon\\n a time\\n' | RUN -t 0 -n 4", 0, "Once upon\n a time, there", NULL);
}

static void test_json(void **state)
{
    (void)state;
    char *out = test_cli_output("printf 'Tell me.\\nAnd?\\n' | RUN -i --json --local 2 " CHAT "-n 7", 0);
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
    test_cli_expect(command, 7, "\"ended_by\": \"context\"", "the context holds 75");
    snprintf(command, sizeof command, line, "shift");
    char *out = test_cli_output(command, 0);
    int lines = 0;
    for (char *at = out; (at = strchr(at, '\n')) != NULL; at++) lines++;
    assert_int_equal(lines, 8);
    assert_null(strstr(out, "\"context\""));
    assert_non_null(strstr(out, "\"left_out_messages\": 2"));
    free(out);
    test_cli_expect("RUN -p 'Once upon a time' -c 50 -n 300 --json --logit-bias 2045:-inf", 0,
          "\"ended_by\": \"context\"", NULL);
    test_cli_expect("RUN -p 'Once upon a time' -c 50 -n 300 --json " ENDLESS, 0, "\"ended_by\": \"length\"",
          NULL);
}

/* Behind a NUL a line goes on. */
static void test_nul_in_a_line(void **state)
{
    (void)state;
    char *whole = test_cli_output("printf 'hi\\0you there\\n' | RUN --json -n 2 " CHAT, 0);
    char *line = test_cli_output("printf 'hi\\0you there\\n' | RUN -i --json -n 2 " CHAT, 0);
    json_t *one = json_loads(whole, 0, NULL), *two = json_loads(line, 0, NULL);
    json_t *tokens = json_object_get(one, "prompt_tokens");
    assert_true(json_integer_value(tokens) > 0);
    assert_true(json_equal(tokens, json_object_get(two, "prompt_tokens")));
    json_decref(one);
    json_decref(two);
    free(whole);
    free(line);
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
        char *one = test_cli_output(command, 0);
        snprintf(command, sizeof command, line, model, "--local 3");
        char *three = test_cli_output(command, 0);
        assert_string_equal(one, three);
        assert_true(strlen(one) > 20);
        free(one);
        free(three);
    }
}

/* The story model with a chat template: one more entry of metadata behind the header. Its length is
 * a multiple of the alignment, so that everything behind it stays aligned. */
/* Suspended for longer than a device may be silent, then called back. */
static void test_suspended(void **state)
{
    (void)state;
    test_pty *pty = test_pty_start_job("--local 3 -n 5 " CHAT, "sleep 1.5; fg");
    expect_prompt(pty);
    test_pty_send(pty, "Tell me.\r");
    expect_prompt(pty);
    test_pty_send(pty, "\032");
    expect_prompt(pty);
    test_pty_send(pty, "And then?\r");
    expect_prompt(pty);
    test_pty_send(pty, "/stats\r");
    test_pty_expect(pty, "2 answers, 10 tokens");
    expect_prompt(pty);
    test_pty_send(pty, "\004");
    assert_int_equal(test_pty_finish(pty), 0);
}

/* Where no shell could call it back Ctrl-Z does nothing. */
static void test_not_suspended(void **state)
{
    (void)state;
    test_pty *pty = test_pty_start("--local 2 -n 5 " CHAT);
    expect_prompt(pty);
    test_pty_send(pty, "\032");
    expect_prompt(pty);
    test_pty_send(pty, "Tell me.\r");
    expect_prompt(pty);
    test_pty_send(pty, "\004");
    assert_int_equal(test_pty_finish(pty), 0);
}

/* A worker that stands still is lost, and does not keep the program from ending. */
static void test_worker_stands_still(void **state)
{
    (void)state;
    test_cli_expect("RUN --local 3 -p Once -n 1000000 -t 0 " ENDLESS ">$DIR/story & p=$!;"
                    "until [ -s $DIR/story ] || ! kill -0 $p; do sleep 0.1; done;"
                    "read -r w rest </proc/$p/task/$p/children; kill -STOP $w; wait $p",
                    8, NULL, "no sign of life");
}

static void write_model(const char *path, const char *template)
{
    static const char key[] = "tokenizer.chat_template";
    size_t bytes, template_bytes = strlen(template);
    size_t entry = 8 + sizeof key - 1 + 4 + 8 + template_bytes, padded = (entry + 31) / 32 * 32;
    unsigned char *file = test_read_file("src/assets/stories-4m-f16.gguf", &bytes);
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
    snprintf(path, sizeof path, "%s/chat.gguf", test_cli_folder());
    write_model(path, "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + "
                      "message.content + '<|im_end|>\\n' }}{% endfor %}"
                      "{{ '<|im_start|>assistant\\n' }}");
    char *own = test_cli_output("RUN -m $DIR/chat.gguf -p 'Tell me.' -n 12 -t 0", 0);
    char *named = test_cli_output("RUN -p 'Tell me.' -n 12 " CHAT, 0);
    assert_string_equal(own, named); /* a model with a template is asked */
    test_cli_expect("RUN -m $DIR/chat.gguf -p 'Once upon' -n 2 --no-chat", 0, "Once upon", NULL);
    test_cli_expect("RUN -m $DIR/chat.gguf -p x --special", 2, NULL, "--no-chat");
    write_model(path, "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
    test_cli_expect("RUN -m $DIR/chat.gguf -p x", 5, NULL, "none of those that are known");
    test_cli_expect("RUN -m $DIR/chat.gguf -p x", 5, NULL, "--no-chat");
    test_cli_expect("RUN -m $DIR/chat.gguf -p 'Once upon' -n 2 --no-chat", 0, "Once upon", NULL);
    char *chosen = test_cli_output("RUN -m $DIR/chat.gguf -p 'Tell me.' -n 12 " CHAT, 0);
    assert_string_equal(chosen, named);
    free(own);
    free(named);
    free(chosen);
}

static int set_up(void **state)
{
    unsetenv("NO_COLOR");
    return test_cli_set_up(state);
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
        cmocka_unit_test(test_chat_over_devices),
        cmocka_unit_test(test_templates_in_files), cmocka_unit_test(test_nul_in_a_line),
        cmocka_unit_test(test_suspended), cmocka_unit_test(test_not_suspended),
        cmocka_unit_test(test_worker_stands_still),
    };
    return cmocka_run_group_tests(tests, set_up, test_cli_tear_down);
}
