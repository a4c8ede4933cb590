/* session_internal.h: a session's insides, shared by what feeds, generates, saves and loads. */
#ifndef VTI_SESSION_INTERNAL_H
#define VTI_SESSION_INTERNAL_H

#include "cluster.h"
#include "head.h"
#include "sampler.h"
#include "stage.h"

struct vt_session {
    vt_model *model;
    vt_cluster *cluster; /* NULL: everything here */
    bool cluster_begun;
    vti_stage *stage;    /* the layers of this device */
    vti_head head;
    vti_sampler sampler;
    vt_kv_type kv_type;
    uint32_t context, batch;
    vt_token *history;   /* context of them */
    uint32_t history_count;
    uint32_t computed;   /* of the history: their keys and values are cached */
    bool logits_valid;   /* `logits` belong to the newest computed token */
    float *h;            /* batch × d: residual stream */
    float *logits;       /* head_rows × vocab; the first row: the newest token's */
    uint32_t head_rows;  /* 1, or VTI_HEAD_ROWS once all positions were asked for */
    void *blob;          /* the caller's, from the file that was loaded last */
    uint64_t scratch_bytes; /* taken from the device's budget for these */
    atomic_bool cancelled;
    vt_session_stats stats;
};

/* Bytes of history, residual stream, logits and sampler. */
uint64_t vti_session_bytes(const vti_hparams *hparams, uint32_t context_tokens,
                           uint32_t batch_tokens);

/* Makes the devices of the cluster ready for a conversation. */
vt_status vti_session_begin_devices(vt_session *session, vt_error *err);

/* Computes what of the history has not been computed, and the logits after its last token. */
vt_status vti_session_compute(vt_session *session, vt_error *err);

/* The logits after the newest token, computing it if it was drawn and not computed yet. */
vt_status vti_session_compute_drawn(vt_session *session, vt_error *err);

#endif
