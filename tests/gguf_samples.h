/* gguf_samples.h: small complete GGUF files, for damaging and as seeds of the fuzzer. */
#ifndef VTI_TEST_GGUF_SAMPLES_H
#define VTI_TEST_GGUF_SAMPLES_H

#include "gguf_builder.h"

/* Every value type, scalar and array, and tensors of one to four dimensions, plain and in blocks;
 * about 1.5 KB. */
unsigned char *gguf_sample_complete(uint32_t version, size_t *bytes);

/* Metadata only. */
unsigned char *gguf_sample_vocabulary(size_t *bytes);

/* Neither metadata nor tensors: 24 bytes. */
unsigned char *gguf_sample_empty(size_t *bytes);

/* Alignment 64, tensor data with gaps. */
unsigned char *gguf_sample_aligned(size_t *bytes);

#endif
