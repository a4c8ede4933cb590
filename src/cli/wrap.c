/* wrap.c: text in lines of a given width. */
#include <string.h>

#include "cli.h"

static int columns_of(const char *text, size_t bytes)
{
    int columns = 0;
    for (size_t i = 0; i < bytes; i++) columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

int cli_columns(const char *text) { return columns_of(text, strlen(text)); }

/* Bytes up to where a line may end: a number and its unit stay together. */
static size_t word_bytes(const char *text)
{
    size_t bytes = strcspn(text, " \n");
    while (bytes && text[bytes] == ' ' && text[bytes - 1] >= '0' && text[bytes - 1] <= '9')
        bytes += 1 + strcspn(text + bytes + 1, " \n");
    return bytes;
}

void cli_print_wrapped(const char *text, int columns, int column, int indent)
{
    bool begun = false; /* there is a word in this line */
    while (*text) {
        size_t bytes = word_bytes(text);
        int width = columns_of(text, bytes);
        if ((begun && column + 1 + width > columns) ||
            (!begun && column > indent && column + width > columns)) {
            printf("\n%*s", indent, "");
            column = indent;
            begun = false;
        }
        printf("%s%.*s", begun ? " " : "", (int)bytes, text);
        column += width + begun;
        begun = true;
        for (text += bytes; *text == ' ' || *text == '\n'; text++) {
            if (*text != '\n') continue;
            putchar('\n');
            column = 0;
            begun = false;
        }
    }
    putchar('\n');
}
