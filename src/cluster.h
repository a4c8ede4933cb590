/* cluster.h: what a session needs of a cluster. The main device runs the first layers itself; the
 * others follow, device to device, and the last one sends the residual stream back. */
#ifndef VTI_CLUSTER_H
#define VTI_CLUSTER_H

#include <stdatomic.h>

#include "kv_transfer.h"
#include "model.h"

const vt_model *vti_cluster_model(const vt_cluster *cluster);

/* Replaces 0 by the default. */
void vti_session_sizes(const vti_hparams *hparams, uint32_t *context_tokens, uint32_t *batch_tokens);

/* Weights of the main device's own layers: the first ones. */
const vti_weights *vti_cluster_main_weights(const vt_cluster *cluster);

/* True if any layer runs elsewhere. */
bool vti_cluster_has_remote(const vt_cluster *cluster);

/* Makes all workers ready for a conversation; ERR_BUSY if there is one. */
vt_status vti_cluster_begin_session(vt_cluster *cluster, uint32_t context_tokens,
                                    uint32_t batch_tokens, vt_kv_type kv_type, vt_error *err);
void vti_cluster_end_session(vt_cluster *cluster);

/* Sends the residual stream (tokens × d) of a step to the next device. Of the result only the last
 * row comes back unless `all_rows`. */
vt_status vti_cluster_send(vt_cluster *cluster, const float *h, uint32_t position, uint32_t tokens,
                           bool all_rows, vt_error *err);

/* Waits for the result of the oldest step that was sent: `rows` × d floats. */
vt_status vti_cluster_receive(vt_cluster *cluster, float *h, uint32_t rows,
                              const atomic_bool *cancelled, vt_error *err);

/* The results of all steps that were sent are not wanted any more. */
void vti_cluster_forget_steps(vt_cluster *cluster);

/* Rows of a KV cache for `shape`, which spans layers of one device or of several. */
typedef struct vti_kv_stream {
    /* Takes or gives the rows of one piece; what it fails with ends the transfer. */
    vt_status (*rows)(void *user, const vti_kv_chunk *chunk, void *rows, size_t bytes,
                      vt_error *err);
    void *user;
} vti_kv_stream;

/* Hands out the rows of all layers that run elsewhere, in order; `end` tokens were computed. */
vt_status vti_cluster_fetch_kv(vt_cluster *cluster, uint32_t end, size_t row_bytes,
                               const vti_kv_stream *stream, vt_error *err);

/* Asks for these rows and gives them to the workers. Their session must be a new one. */
vt_status vti_cluster_store_kv(vt_cluster *cluster, uint32_t end, size_t row_bytes,
                               const vti_kv_stream *stream, vt_error *err);

/* Adds to what the main device spent computing. */
void vti_cluster_count_busy(vt_cluster *cluster, uint64_t ns);

#endif
