/* text_stream.h: tokens' bytes in, text out: whole UTF-8 sequences, up to a stop string. */
#ifndef VTI_TEXT_STREAM_H
#define VTI_TEXT_STREAM_H

#include "tokenizer/tokenizer.h"

typedef enum vti_text_result {
    VTI_TEXT_MORE,
    VTI_TEXT_STOP_STRING, /* what stood before it was delivered, the rest is dropped */
    VTI_TEXT_STOPPED,     /* the callback said so */
    VTI_TEXT_NO_MEMORY,
} vti_text_result;

/* Begin with the first four fields and zero. */
typedef struct vti_text_stream {
    vt_text_fn on_text; /* NULL: only looks for stop strings */
    void *user;
    const char *const *stop;
    size_t stop_count;
    vti_utf8_stream utf8;
    char *held; /* not delivered: what a stop string may begin with */
    size_t held_bytes, capacity;
    bool over;  /* something stopped it: nothing is delivered any more */
} vti_text_stream;

/* ERR_ARGUMENT names the stop string that is wrong. */
vt_status vti_stop_strings_check(const char *const *stop, size_t count, vt_error *err);

vti_text_result vti_text_push(vti_text_stream *stream, const char *data, size_t bytes);

/* Delivers what is held back, if nothing stopped before, and frees. */
vti_text_result vti_text_end(vti_text_stream *stream);
void vti_text_free(vti_text_stream *stream);

#endif
