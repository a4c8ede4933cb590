#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADVICE "make one with: head -c 32 /dev/urandom > cluster.key"

vti_net_status vti_net_key_from_bytes(const void *material, size_t bytes, vti_net_key *out,
                                      vti_net_error *err)
{
    static const uint8_t domain[] = "Voltron cluster key 1";
    const uint8_t *from = material;
    while (bytes > 0 && (from[bytes - 1] == '\n' || from[bytes - 1] == '\r')) bytes--;
    if (bytes == 0) return vti_net_fail(err, VTI_NET_ERR_KEY, "the key is empty; " ADVICE);
    if (bytes < VTI_NET_KEY_MIN_BYTES)
        return vti_net_fail(err, VTI_NET_ERR_KEY, "the key has only %zu bytes, at least %u are "
                            "needed; " ADVICE, bytes, VTI_NET_KEY_MIN_BYTES);
    if (bytes > VTI_NET_KEY_MAX_BYTES)
        return vti_net_fail(err, VTI_NET_ERR_KEY, "the key is longer than %u bytes; " ADVICE,
                            VTI_NET_KEY_MAX_BYTES);
    if (sodium_init() < 0)
        return vti_net_fail(err, VTI_NET_ERR_SYSTEM, "the system has no source of randomness");
    crypto_generichash(out->bytes, sizeof out->bytes, from, bytes, domain, sizeof domain - 1);
    return VTI_NET_OK;
}

/* Reads at most `capacity` bytes; -1 with errno on failure. */
static ssize_t read_up_to(int fd, uint8_t *buffer, size_t capacity)
{
    size_t have = 0;
    while (have < capacity) {
        ssize_t count = read(fd, buffer + have, capacity - have);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return -1;
        if (count == 0) break;
        have += (size_t)count;
    }
    return (ssize_t)have;
}

static vti_net_status load_from(int fd, const char *path, vti_net_key *out, vti_net_error *err)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0 || S_ISDIR(facts.st_mode) || S_ISFIFO(facts.st_mode))
        return vti_net_fail(err, VTI_NET_ERR_KEY, "key file %s: not a file", path);
    if (S_ISREG(facts.st_mode) && (facts.st_mode & S_IRWXO))
        return vti_net_fail(err, VTI_NET_ERR_KEY, "key file %s: every user of this machine has "
                            "access to it; run: chmod 600 %s", path, path);
    size_t capacity = VTI_NET_KEY_MAX_BYTES + 3; /* a line end more, and one byte to see too much */
    uint8_t *material = malloc(capacity);
    if (!material) return vti_net_fail(err, VTI_NET_ERR_MEMORY, "no memory for the key");
    ssize_t bytes = read_up_to(fd, material, capacity);
    vti_net_status status;
    vti_net_error why = { 0 };
    if (bytes < 0) {
        status = vti_net_fail(&why, VTI_NET_ERR_KEY, "%s", strerror(errno));
    } else {
        status = vti_net_key_from_bytes(material, (size_t)bytes, out, &why);
    }
    sodium_memzero(material, capacity);
    free(material);
    if (status != VTI_NET_OK) vti_net_fail(err, status, "key file %s: %s", path, why.message);
    return status;
}

vti_net_status vti_net_key_load(const char *path, vti_net_key *out, vti_net_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return vti_net_fail(err, VTI_NET_ERR_KEY, "key file %s: %s", path, strerror(errno));
    vti_net_status status = load_from(fd, path, out, err);
    close(fd);
    return status;
}
