/* session_kv.h: a session's KV cache, wherever its layers run, in a session file. */
#ifndef VTI_SESSION_KV_H
#define VTI_SESSION_KV_H

#include "save_stream.h"
#include "session_internal.h"

/* Writes the rows that are needed to go on after the computed tokens. */
vt_status vti_session_write_kv(vt_session *session, vti_save_writer *w, vt_error *err);

/* Reads over such rows for `end` computed tokens; ERR_FORMAT if they are of another shape. */
vt_status vti_session_check_kv(const vt_session *session, vti_save_reader *r, uint32_t end,
                               vt_error *err);

/* Reads them into the caches of all devices. The session must be empty and nothing under way. */
vt_status vti_session_read_kv(vt_session *session, vti_save_reader *r, uint32_t end,
                              vt_error *err);

/* Makes the devices forget the conversation, and what is under way. */
vt_status vti_session_restart_devices(vt_session *session, vt_error *err);

#endif
