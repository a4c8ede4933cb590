/* cluster_links.h: the planner's link matrix, from what each device is attached to and from what
 * was measured. Which links share airtime is decided here; docs/links.md explains how. */
#ifndef VTI_CLUSTER_LINKS_H
#define VTI_CLUSTER_LINKS_H

#include "../net/quality.h"
#include "../planner/planner.h"

enum {
    VTI_NETWORKS_MAX = VTI_PLAN_GROUPS_MAX,
    VTI_ATTACHMENTS_MAX = 3,
    VTI_HUB_OUTSIDE = 254, /* an access point or a switch, which is none of the devices */
    VTI_HUB_NONE = 255,    /* every device reaches every other by itself */
};

/* Devices that reach each other: an access point and its clients, a group, a switch. */
typedef struct vti_network {
    const vti_medium *medium;
    unsigned hub;  /* the device that all goes through (a group's owner, a hotspot), or one of the
                      two above */
    unsigned site; /* networks of one site (from 1 on) are connected by cable, as the radios and
                      sockets of a router are; 0: this one is by itself */
} vti_network;

typedef struct vti_attachment {
    unsigned network;  /* number of it */
    double rssi_dbm;   /* to the hub; VTI_RSSI_UNKNOWN */
    double latency_s;  /* to the hub, if measured or known; 0: by medium and signal */
    double bytes_per_s;
} vti_attachment;

typedef struct vti_device_media {
    unsigned attachments;
    vti_attachment attachment[VTI_ATTACHMENTS_MAX];
    /* Measured between this device and the main device; bytes_per_s 0: it was not. Comes before
     * what attachments say. Of the main device not used. */
    vti_link_estimate to_main;
} vti_device_media;

typedef struct vti_cluster_media {
    unsigned networks;
    vti_network network[VTI_NETWORKS_MAX];
    unsigned devices;
    vti_device_media device[VTI_PLAN_DEVICES_MAX]; /* 0 is the main device */
} vti_cluster_media;

/* What a link between devices that do not reach each other looks like to the planner. */
#define VTI_LINK_NONE_LATENCY_S 1e3
#define VTI_LINK_NONE_BYTES_PER_S 1.0

/* NULL if the description makes sense, else what is wrong; *where is the offending device, or the
 * offending network if *is_network. */
const char *vti_cluster_media_check(const vti_cluster_media *media, unsigned *where,
                                    bool *is_network);

/* Fills cluster->link for media->devices devices; the description must make sense. Two devices
 * without attachments reach each other as well as the worse of both reaches the main device.
 * Returns the devices that main reaches, a bit each (with bit 0): leave the others out. */
unsigned vti_cluster_links(const vti_cluster_media *media, vti_plan_cluster *cluster);

#endif
