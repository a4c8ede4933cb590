/* chat_jinja.h: chat templates as files carry them, made comparable.
 *
 * Templates are Jinja programs of many hands: spaces, quotes and subscripts differ where the
 * meaning does not. They are not executed here; their canonical form is searched for telling pieces. */
#ifndef VTI_CHAT_JINJA_H
#define VTI_CHAT_JINJA_H

#include <stdbool.h>
#include <stddef.h>

/* Around a string literal in the canonical form. */
#define VTI_LITERAL "\002"
#define VTI_END "\003"

/* Canonical form, malloc'd; NULL without memory. Text outside of {{ }} and {% %} stays as it is,
 * less what white space control takes; comments go. Inside, white space goes, literals are decoded and
 * stand between VTI_LITERAL and VTI_END, x['name'] becomes x.name, and literals that are added
 * become one. */
char *vti_jinja_canonical(const char *source, size_t bytes);

bool vti_jinja_has(const char *canonical, const char *piece);

/* The text between the first `open` and `close` that nothing interrupts: no end of a literal and no
 * {{ or {%. Malloc'd; NULL if there is none (or no memory). */
char *vti_jinja_between(const char *canonical, const char *open, const char *close);

#endif
