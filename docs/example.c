/* example.c: a complete program on libvoltron. Continues a text and prints it as it comes.
 *
 * After `make lib`, in the source tree (installed with the default PREFIX, the compiler needs
 * neither -I nor -L; with another one -I$PREFIX/include -L$PREFIX/lib):
 *
 *   cc docs/example.c -Iinclude -Lbuild -lvoltron \
 *      $(pkg-config --libs libuv libpcre2-8 libutf8proc libsodium libzstd) -lm -pthread -o example
 *   ./example model.gguf "Once upon a time"
 */
#include <stdio.h>
#include <string.h>

#include <voltron.h>

static bool print(void *user, const char *text, size_t text_bytes)
{
    (void)user;
    fwrite(text, 1, text_bytes, stdout);
    fflush(stdout);
    return true; /* go on */
}

static int tell(vt_model *model, const char *prompt)
{
    vt_session *session;
    vt_error err;
    vt_session_params params = vt_session_params_default();
    params.sampling.seed = 1;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) {
        fprintf(stderr, "%s: %s\n", vt_status_text(err.status), err.message);
        return 1;
    }
    vt_stop_reason reason;
    vt_status status =
        vt_session_feed_text(session, prompt, strlen(prompt), VT_TOKENIZE_BOS, &err);
    if (status == VT_OK) status = vt_session_generate(session, 100, print, NULL, &reason, &err);
    if (status != VT_OK) fprintf(stderr, "%s: %s\n", vt_status_text(status), err.message);
    putchar('\n');
    vt_session_close(session);
    return status == VT_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL.gguf TEXT\n", argv[0]);
        return 2;
    }
    vt_model *model;
    vt_error err;
    if (vt_model_open(argv[1], NULL, &model, &err) != VT_OK) {
        fprintf(stderr, "%s: %s\n", vt_status_text(err.status), err.message);
        return 1;
    }
    int code = tell(model, argv[2]);
    vt_model_close(model);
    return code;
}
