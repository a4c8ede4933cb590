#include "chat_jinja.h"

#include <stdlib.h>
#include <string.h>

enum { LITERAL = '\002', END = '\003' };

typedef struct reader {
    const char *at, *end;
    char *out, *to; /* never longer than the source: every step writes at most what it reads */
    char *text;     /* where the text outside of code began */
} reader;

static bool starts(const reader *r, const char *text)
{
    size_t bytes = strlen(text);
    return (size_t)(r->end - r->at) >= bytes && memcmp(r->at, text, bytes) == 0;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void put(reader *r, char c)
{
    if (c != 0 && c != LITERAL && c != END) *r->to++ = c;
}

/* White space before an opening goes: all with a dash; before a statement or comment that is alone
 * at the beginning of its line also without one, as chat templates are run. */
static void trim_before(reader *r, bool dash, bool statement)
{
    char *keep = r->to;
    while (keep > r->text && (dash ? is_space(keep[-1]) : keep[-1] == ' ' || keep[-1] == '\t'))
        keep--;
    if (dash || (statement && (keep == r->out || keep[-1] == '\n'))) r->to = keep;
}

/* And behind a closing: all with a dash, the line break behind a statement or comment without. */
static void trim_behind(reader *r, bool dash, bool statement)
{
    if (dash)
        while (r->at < r->end && is_space(*r->at)) r->at++;
    else if (statement && r->at < r->end && *r->at == '\n')
        r->at++;
    r->text = r->to;
}

static void skip_comment(reader *r)
{
    trim_before(r, r->end - r->at > 2 && r->at[2] == '-', true);
    while (r->at < r->end && !starts(r, "#}")) r->at++;
    bool dash = r->at < r->end && r->at[-1] == '-';
    r->at = r->end - r->at > 2 ? r->at + 2 : r->end;
    trim_behind(r, dash, true);
}

/* Reads a literal, from its quote to behind the closing one. */
static void read_literal(reader *r)
{
    char quote = *r->at++;
    *r->to++ = LITERAL;
    while (r->at < r->end && *r->at != quote) {
        char c = *r->at++;
        if (c == '\\' && r->at < r->end) {
            c = *r->at++;
            if (c == 'n') c = '\n';
            if (c == 't') c = '\t';
            if (c == 'r') c = '\r';
        }
        put(r, c);
    }
    if (r->at < r->end) r->at++;
    *r->to++ = END;
}

/* A literal was written from `from` on: is it a subscript, or added to one before? */
static void fold_literal(reader *r, char *from)
{
    bool word = r->to - from > 2;
    for (char *c = from + 1; c < r->to - 1; c++) word = word && is_word(*c);
    while (r->at < r->end && is_space(*r->at)) r->at++;
    if (word && from > r->out && from[-1] == '[' && r->at < r->end && *r->at == ']') {
        from[-1] = '.';
        memmove(from, from + 1, (size_t)(r->to - from - 2));
        r->to -= 2;
        r->at++;
    } else if (from - r->out >= 2 && from[-1] == '+' && from[-2] == END) {
        memmove(from - 2, from + 1, (size_t)(r->to - from - 1));
        r->to -= 3;
    }
}

/* Reads an expression or statement, from its two opening characters to behind the closing ones. */
static void read_code(reader *r)
{
    bool statement = r->at[1] == '%';
    const char *close = statement ? "%}" : "}}";
    trim_before(r, r->end - r->at > 2 && r->at[2] == '-', statement);
    for (int i = 0; i < 2; i++) *r->to++ = *r->at++;
    if (r->at < r->end && (*r->at == '-' || *r->at == '+')) r->at++;
    while (r->at < r->end) {
        char c = *r->at;
        if (c == '\'' || c == '"') {
            char *from = r->to;
            read_literal(r);
            fold_literal(r, from);
            continue;
        }
        bool dash = c == '-' && r->end - r->at > 2 && memcmp(r->at + 1, close, 2) == 0;
        if (dash) r->at++;
        if (starts(r, close)) {
            for (int i = 0; i < 2; i++) *r->to++ = *r->at++;
            trim_behind(r, dash, statement);
            return;
        }
        if (!is_space(*r->at)) put(r, *r->at);
        r->at++;
    }
}

char *vti_jinja_canonical(const char *source, size_t bytes)
{
    /* A literal without its closing quote at the very end gains one byte. */
    char *out = malloc(bytes + 2);
    if (!out) return NULL;
    reader r = {source, source + bytes, out, out, out};
    while (r.at < r.end) {
        if (starts(&r, "{#")) {
            skip_comment(&r);
        } else if (starts(&r, "{{") || starts(&r, "{%")) {
            read_code(&r);
        } else {
            put(&r, *r.at++);
        }
    }
    *r.to = 0;
    return out;
}

bool vti_jinja_has(const char *canonical, const char *piece)
{
    return strstr(canonical, piece) != NULL;
}

/* Bytes from `text` to where its literal, or its text outside of code, ends. */
static size_t run_bytes(const char *text)
{
    size_t bytes = 0;
    for (; text[bytes]; bytes++) {
        char c = text[bytes];
        if (c == LITERAL || c == END) break;
        if (c == '{' && (text[bytes + 1] == '{' || text[bytes + 1] == '%')) break;
    }
    return bytes;
}

char *vti_jinja_between(const char *canonical, const char *open, const char *close)
{
    for (const char *at = canonical; (at = strstr(at, open)) != NULL;) {
        at += strlen(open);
        size_t bytes = run_bytes(at);
        const char *end = *close ? strstr(at, close) : at + bytes;
        /* A closing piece that is the end of the literal itself lies just behind the run. */
        if (end && (size_t)(end - at) <= bytes) return strndup(at, (size_t)(end - at));
    }
    return NULL;
}
