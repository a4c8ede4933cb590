/* cluster_file.h: a cluster as a person writes it down, as the planner sees it. docs/cluster-file.md
 * describes the format. */
#ifndef VTI_CLUSTER_FILE_H
#define VTI_CLUSTER_FILE_H

#include "profile.h"

enum {
    VTI_CLUSTER_TEXT_MAX = 1 << 20, /* bytes of a file */
    VTI_CLUSTER_NAME_MAX = 32,      /* with the NUL */
    VTI_CLUSTER_KIND_MAX = 64,
    VTI_CLUSTER_ADDRESS_MAX = 80,
};

typedef struct vti_cluster_device {
    char name[VTI_CLUSTER_NAME_MAX];
    char kind[VTI_CLUSTER_KIND_MAX];       /* its class, the path of its profile, or "given" */
    char address[VTI_CLUSTER_ADDRESS_MAX]; /* "HOST:PORT", or "" */
    bool has_profile; /* vti_profile_fill has to be asked for its costs, which depend on the model */
    vti_profile profile;
} vti_cluster_device;

/* Holds no pointer. The scratch memory of the plan's devices is 0: it depends on the model. */
typedef struct vti_cluster_file {
    vti_cluster_device device[VTI_PLAN_DEVICES_MAX];
    unsigned reached; /* by the main device, a bit each; the links of the others are endless */
    vti_plan_cluster plan;
} vti_cluster_file;

/* `file` names the text in messages; paths in it start from the file's folder. */
vt_status vti_cluster_file_parse(const char *text, size_t bytes, const char *file,
                                 vti_cluster_file *out, vt_error *err);
vt_status vti_cluster_file_read(const char *path, vti_cluster_file *out, vt_error *err);

#endif
