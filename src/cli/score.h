/* score.h: how well a model predicts a text; for the commands that go through one. */
#ifndef CLI_SCORE_H
#define CLI_SCORE_H

#include "cli.h"

typedef struct cli_score {
    double mean_nll; /* -ln p of a token */
    uint64_t tokens; /* that were predicted */
} cli_score;

/* Feeds every document of the text in windows of the context, each begun with BOS. `what` names
 * that in the progress line. CLI_OK, or an exit code after a line on stderr; 130: interrupted. */
int cli_score_text(cli_compute *compute, const char *text, size_t bytes, const char *what,
                   cli_score *out);

/* Bytes of the document that begins at *text, and where the next one does: documents are separated
 * by lines that are <|endoftext|> and nothing else. */
size_t cli_next_document(const char **text, const char *end);

#endif
