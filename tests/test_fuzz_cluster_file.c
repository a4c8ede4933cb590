/* Runs the fuzz target over its corpus.
 *   test_fuzz_cluster_file FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_cluster_file --write-seeds FOLDER   writes small cluster files there
 */
#define FUZZ_NAME "cluster_file"
#include "fuzz/fuzz_cluster_file.c"
#include "fuzz/replay.h"

#define RATES "\"compute\": {\"gmacs_per_s\": 50, \"int_gmacs_per_s\": 90, \"gbytes_per_s\": 20, " \
              "\"unit_us\": 5}"

static int write_seeds(const char *folder)
{
    static const struct {
        const char *name, *text;
    } seeds[] = {
        {"one", "{\"devices\": [{\"name\": \"a\", \"memory\": 5e9, " RATES "}]}"},
        {"three", "{\"devices\": ["
                  "{\"name\": \"a\", \"memory\": \"4G\", \"medium\": \"wifi-ac-80\", " RATES "},"
                  "{\"name\": \"b\", \"memory\": \"1.5GiB\", \"medium\": \"wifi-ac-80\","
                  " \"rssi_dbm\": -60, \"address\": \"10.0.0.2:7001\", " RATES "},"
                  "{\"name\": \"c\", \"memory\": \"64M\", \"medium\": \"bluetooth\","
                  " \"latency_ms\": 8, \"bandwidth_mbps\": 1.5, " RATES "}],"
                  "\"pairs\": [{\"between\": [\"b\", \"c\"], \"latency_ms\": 3,"
                  " \"bandwidth_mbps\": 2}]}"},
        {"class", "{\"devices\": [{\"name\": \"a\", \"class\": \"pixel-5\"}]}"},
        {"profile", "{\"devices\": [{\"name\": \"a\", \"profile\": \"a.json\", \"memory\": \"2G\"}]}"},
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        failures += fuzz_write_seed(folder, seeds[i].name, -1, seeds[i].text,
                                    strlen(seeds[i].text));
    return failures;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
