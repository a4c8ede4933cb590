/* device_class.h: devices that can be planned for without having them: what is published about
 * their cores and memory (assets/devices.json, part of the library), and a formula that makes a
 * profile of it (docs/profile.md). */
#ifndef VTI_DEVICE_CLASS_H
#define VTI_DEVICE_CLASS_H

#include "profile.h"

/* Fills *profile (and *memory_bytes, the RAM; may be NULL) for the class of that name.
 * ERR_ARGUMENT: there is none; the message names all. */
vt_status vti_device_class(const char *name, vti_profile *profile, uint64_t *memory_bytes,
                           vt_error *err);

#endif
