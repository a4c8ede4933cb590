/* json_lines.h: JSON that is written line by line, as people read it. */
#ifndef VTI_JSON_LINES_H
#define VTI_JSON_LINES_H

#include <jansson.h>
#include <stddef.h>

/* Starts as {0}. A text that grows, for free(); NULL once there was no memory. */
typedef struct vti_json_lines {
    char *bytes;
    size_t length, room;
    int failed;
} vti_json_lines;

void vti_json_append(vti_json_lines *lines, const char *text, size_t length);

/* Appends a value without its last `cut` characters, numbers with so many digits; `flags` are
 * jansson's. Takes the value over; NULL is a failure. */
void vti_json_append_value(vti_json_lines *lines, json_t *value, int digits, size_t flags,
                           size_t cut);

#endif
