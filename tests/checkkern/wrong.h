/* wrong.h: kernels that are wrong on purpose, to prove that the harness notices. */
#ifndef VTI_CHECKKERN_WRONG_H
#define VTI_CHECKKERN_WRONG_H

#include "checkkern.h"

typedef struct ck_wrong {
    const char *name;
    ck_check_fn *check; /* must fail … */
    unsigned index;
    void (*spoil)(vti_kernels *kernels); /* … after this put one wrong function into the table … */
    const char *complaint;               /* … with these words in its message. */
} ck_wrong;

extern const ck_wrong ck_wrongs[];
extern const size_t ck_wrong_count;

#endif
