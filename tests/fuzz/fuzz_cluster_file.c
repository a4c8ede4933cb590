/* fuzz_cluster_file.c: any text as a cluster file. Ends the process where reading breaks a promise:
 * what is accepted can be planned with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/cluster_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_cluster_file: broken promise: %s\n", what);
    abort();
}

/* The smallest model there is. */
static void set_model(vti_plan_model *model)
{
    memset(model, 0, sizeof *model);
    model->classes = 2, model->units = 2;
    model->class_[0] = (vti_plan_class){.kind = VTI_PLAN_EMBED, .shards = 1};
    model->class_[1] = (vti_plan_class){.kind = VTI_PLAN_HEAD, .shards = 1};
    model->unit_class[1] = 1;
}

static void check(const vti_cluster_file *file)
{
    static vti_plan_model model;
    vti_plan_request request = {.cluster = &file->plan, .model = &model, .prompt_tokens = 1,
                                .context_tokens = 1, .ttft_s = 1, .tpot_s = 1};
    unsigned where;
    set_model(&model);
    require(!vti_plan_check_request(&request, &where), "a cluster is sound");
    require(file->reached & 1, "the main device reaches itself");
    for (unsigned d = 0; d < file->plan.devices; d++) {
        require(file->device[d].name[0] && file->device[d].kind[0], "devices have names");
        require(file->plan.device[d].memory_bytes >= 1, "devices have memory");
        for (unsigned e = 0; e < d; e++)
            require(strcmp(file->device[d].name, file->device[e].name) != 0, "names differ");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static vti_cluster_file file;
    vt_error err = {.message = ""};
    char *text = malloc(bytes + 1);
    if (!text) abort();
    memcpy(text, data, bytes);
    text[bytes] = 0;
    vt_status status = vti_cluster_file_parse(text, bytes, "cluster.json", &file, &err);
    require((status == VT_OK) == (err.message[0] == 0), "an error has a message");
    if (status == VT_OK) check(&file);
    free(text);
    return 0;
}
